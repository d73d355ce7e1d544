// The updater that a CONTROL sets, and the scalars of its program.

#include "base/byte_io.h"
#include "wire/checked_fields.h"
#include "wire/message.h"

namespace tkv {
namespace {

constexpr size_t kParamsMax = 128;

}  // namespace

std::string EncodeScalars(const std::vector<double>& scalars) {
  ByteWriter writer;
  writer.Number(static_cast<uint32_t>(scalars.size()));
  for (const double scalar : scalars) writer.Number(scalar);
  return writer.Take();
}

std::vector<double> DecodeScalars(std::string_view bytes) {
  ByteReader reader(bytes);
  const uint32_t count = reader.Count(sizeof(double));
  if (count > kParamsMax) throw Fail(Code::kInvalidArgument, "{} hyperparameters", count);
  std::vector<double> scalars(count);
  for (double& scalar : scalars) scalar = reader.Number<double>();
  reader.End();
  return scalars;
}

std::string Encode(const UpdateSpec& value) {
  ByteWriter writer;
  writer.Text(value.program);
  writer.Number(static_cast<uint8_t>(value.multi_precision));
  writer.Number(static_cast<uint32_t>(value.params.size()));
  for (const double param : value.params) writer.Number(param);
  writer.Number(static_cast<uint8_t>(value.fresh));
  return writer.Take();
}

UpdateSpec DecodeUpdateSpec(std::string_view bytes) {
  ByteReader reader(bytes);
  UpdateSpec spec;
  spec.program = reader.Text(kProgramBytesMax);
  spec.multi_precision = ReadBool(&reader);
  const uint32_t count = reader.Count(sizeof(double));
  if (count > kParamsMax) throw Fail(Code::kInvalidArgument, "{} hyperparameters", count);
  spec.params.resize(count);
  for (double& param : spec.params) param = reader.Number<double>();
  spec.fresh = ReadBool(&reader);
  reader.End();
  return spec;
}

}  // namespace tkv
