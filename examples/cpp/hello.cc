// Two workers push gradients for one key; the store sums them and runs SGD.

#include <iostream>
#include <vector>

#include "tkv/error.h"
#include "tkv/kvstore.h"
#include "tkv/ops.h"

int main() {
  const tkv::Shape shape{2, 3};
  const auto store = tkv::KVStore::Create("local");
  store->Init("w", tkv::NDArray::Zeros(shape));
  store->SetOptimizer(tkv::Optimizer::Create("sgd", {{"learning_rate", 0.5}}));

  std::vector<tkv::NDArray> grads;
  for (int worker = 0; worker < 2; ++worker) {
    grads.push_back(tkv::NDArray::Zeros(shape, tkv::DType::kF32, tkv::Context::Cpu(worker)));
    tkv::Fill(grads.back(), worker + 1);
  }
  store->Push("w", grads);

  const tkv::NDArray weight = tkv::NDArray::Zeros(shape);
  store->Pull("w", weight);
  const auto* const elements = static_cast<const float*>(weight.HostData());
  std::cout << "w[0] = " << elements[0] << "\n";  // -0.5 * (1 + 2)

  try {
    store->Push("w", tkv::NDArray::Zeros({3, 2}));
  } catch (const tkv::Error& error) {
    std::cout << Name(error.code()) << ": " << error.what() << "\n";
  }
}
