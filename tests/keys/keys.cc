// Writes and reads keys by C++:  keys write|read TABLE FOLDER; see tests/cluster/test_keys.py.

#include <cstdio>
#include <fstream>
#include <iostream>
#include <sstream>
#include <string>

#include "tkv/error.h"
#include "tkv/kvstore.h"
#include "tkv/ops.h"

namespace {

std::string BytesOf(const std::string& digits) {
  std::string bytes;
  for (size_t i = 0; digits != "-" && i < digits.size(); i += 2) {
    bytes += static_cast<char>(std::stoi(digits.substr(i, 2), nullptr, 16));
  }
  return bytes;
}

std::string DigitsOf(const std::string& bytes) {
  std::string digits;
  for (const char byte : bytes) {
    char two[3];
    std::snprintf(two, sizeof(two), "%02x",
                  static_cast<unsigned>(static_cast<unsigned char>(byte)));
    digits += two;
  }
  return digits.empty() ? "-" : digits;
}

bool Takes(tkv::KVStore* store, const std::string& key, const tkv::NDArray& value) {
  try {
    store->Init(key, value);
    return true;
  } catch (const tkv::Error& error) {
    if (error.code() != tkv::Code::kInvalidArgument) throw;
    return false;
  }
}

}  // namespace

int main(int count, char** words) {
  if (count != 4) return 2;
  const auto store = tkv::KVStore::Create();
  const tkv::NDArray value = tkv::NDArray::Zeros({1});
  if (std::string(words[1]) == "read") {
    store->Restore(words[3]);
    for (const tkv::Key& key : store->Keys()) {
      store->Pull(key.view(), value);
      std::cout << DigitsOf(key.text()) << ' ' << *static_cast<const float*>(value.HostData())
                << '\n';
    }
    return 0;
  }
  std::ifstream table(words[2]);
  int number = 0;
  for (std::string line; std::getline(table, line); ++number) {
    if (line[0] == '#') continue;
    std::string digits;
    std::istringstream(line) >> digits;
    tkv::Fill(value, number);
    std::cout << digits << (Takes(store.get(), BytesOf(digits), value) ? " made\n" : " refused\n");
  }
  store->Save(words[3]);
}
