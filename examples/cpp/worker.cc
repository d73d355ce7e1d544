// Trains in a job of several processes: least squares, each worker with samples of its own.
//
//   tkv launch -n 2 -s 2 ./worker
//
// The servers sum the gradients of a step and run SGD; each worker ends with the same weights.

#include <array>
#include <cstdio>
#include <exception>
#include <random>
#include <vector>

#include "tkv/config.h"
#include "tkv/kvstore.h"

namespace {

constexpr int kFeatures = 4, kSamples = 64, kSteps = 200;
using Features = std::array<double, kFeatures>;
constexpr Features kTruth = {1, -2, 3, 0.5};

double Dot(const Features& a, const Features& b) {
  double sum = 0;
  for (int i = 0; i < kFeatures; ++i) sum += a[i] * b[i];
  return sum;
}

std::vector<Features> MakeSamples(int rank) {
  std::mt19937 random(static_cast<unsigned>(rank));
  std::uniform_real_distribution<double> spread(-1, 1);
  std::vector<Features> samples(kSamples);
  for (Features& sample : samples) {
    for (double& feature : sample) feature = spread(random);
  }
  return samples;
}

// Computes the gradient of the mean squared error over this worker's samples.
void FindGradient(const std::vector<Features>& samples, const float* weights, float* grad) {
  Features mistake, sum{};
  for (int i = 0; i < kFeatures; ++i) mistake[i] = static_cast<double>(weights[i]) - kTruth[i];
  for (const Features& sample : samples) {
    const double error = Dot(mistake, sample);
    for (int i = 0; i < kFeatures; ++i) sum[i] += 2 * error * sample[i] / kSamples;
  }
  for (int i = 0; i < kFeatures; ++i) grad[i] = static_cast<float>(sum[i]);
}

void Train() {
  const auto store = tkv::KVStore::Create("dist_sync", tkv::OptionsFromEnvironment());
  const std::vector<Features> samples = MakeSamples(store->rank());
  const tkv::NDArray weight = tkv::NDArray::Zeros({kFeatures}), grad = weight.Copy();
  const auto* const weights = static_cast<const float*>(weight.HostData());
  store->Init("w", weight);  // rank 0 makes it, the others find it
  store->SetOptimizer(tkv::Optimizer::Create(
      "sgd", {{"learning_rate", 0.5}, {"rescale_grad", 1.0 / store->num_workers()}}));
  for (int step = 0; step < kSteps; ++step) {
    FindGradient(samples, weights, static_cast<float*>(grad.HostData()));
    store->PushPull("w", {&grad, 1}, {&weight, 1});
  }
  std::printf("worker %d of %d: w = %.4f %.4f %.4f %.4f\n", store->rank(), store->num_workers(),
              static_cast<double>(weights[0]), static_cast<double>(weights[1]),
              static_cast<double>(weights[2]), static_cast<double>(weights[3]));
  store->Close();
}

}  // namespace

int main() {
  try {
    Train();
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
  }
}
