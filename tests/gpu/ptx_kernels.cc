// Writes the named kernels for ptxas, which tools/ptxas.py runs: FOLDER/NAME.ptx for each place of the
// table, and FOLDER/table with the names of those that docs/gpu.md has.

#include <filesystem>
#include <fstream>
#include <iostream>

#include "kernels/cuda/ptx.h"
#include "tests/gpu/named_kernels.h"

int main(int argc, char** argv) {
  using tkv::kernels::cuda::TablePlace;
  if (argc != 2) {
    std::cerr << "usage: ptx_kernels FOLDER\n";
    return 2;
  }
  const std::filesystem::path folder = argv[1];
  std::ofstream table(folder / "table");
  for (const auto& kernel : tkv::test::NamedKernels()) {
    const auto write = [&](const std::string& name, TablePlace place) {
      std::ofstream(folder / (name + ".ptx"))
          << tkv::kernels::cuda::WritePtx(kernel.code.elementwise, place);
    };
    write(kernel.name, TablePlace::kParameter);
    write(kernel.name + "-memory", TablePlace::kMemory);
    if (kernel.is_in_table) table << kernel.name << '\n';
  }
  table.close();
  return table ? 0 : 1;
}
