#include "checkpoint/search.h"

#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cmath>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <optional>
#include <utility>

#include "base/format.h"
#include "checkpoint/snapshot_folder.h"
#include "checkpoint/writer.h"
#include "tests/scarce_memory.h"

namespace tkv::checkpoint {
namespace {

class CheckpointTest : public ::testing::Test {
 protected:
  CheckpointTest() {
    std::string name = ::testing::TempDir() + "tkv-XXXXXX";
    folder_ = mkdtemp(name.data());
    path_ = folder_ + "/snapshots";
  }
  ~CheckpointTest() override {
    SetFault({});
    std::filesystem::remove_all(folder_);
  }

  // Returns two keys.  BytesOf makes the bytes of their parts from a mark.
  static std::vector<SavedKey> Keys() {
    SavedKey a;
    a.key = Key(KeyView("a"));
    a.dtype = DType::kF16;
    a.shape = Shape({2, 3});
    a.round = 7;
    a.chunk_elements = 4;
    a.updates = {7, 6};
    a.program = {"program text", true, {0.1, INFINITY}};
    a.has_master = true;
    a.arrays = {"m"};
    a.scalars = {"t"};
    SavedKey b;
    b.key = Key(KeyView("b"));
    b.shape = Shape({5});
    b.is_async = true;
    b.staleness = 3;
    b.step = 9;
    return {a, b};
  }
  static std::vector<std::byte> BytesOf(const Item& item, int mark) {
    std::vector<std::byte> bytes(item.tensor.bytes());
    for (size_t i = 0; i < bytes.size(); ++i) {
      bytes[i] = static_cast<std::byte>(mark * 31 + item.part * 7 + item.key * 3 + i);
    }
    return bytes;
  }
  static std::string WriteAll(Writer writer, int mark) {
    for (const Item& item : writer.items()) writer.Write(BytesOf(item, mark));
    return writer.Commit();
  }
  std::string Save(int mark, uint64_t file_bytes = 64) {
    return WriteAll(Writer::Folder(path_, Keys(), file_bytes), mark);
  }
  // Returns the mark from which all bytes follow; 0 if there is none.  Throws if the snapshot is
  // damaged.
  static int MarkOf(const std::string& path) {
    const Reader reader = Open(path);
    reader.Verify();
    EXPECT_EQ(reader.keys(), Keys());
    const Layout layout = LayoutOf(Keys(), UINT64_MAX);
    for (int mark = 1; mark < 5; ++mark) {
      bool all = true;
      for (const Item& item : layout.items) {
        std::vector<std::byte> bytes(item.tensor.bytes());
        reader.Read(item.key, item.part, bytes);
        all = all && bytes == BytesOf(item, mark);
      }
      if (all) return mark;
    }
    return 0;
  }
  static std::vector<std::string> FilesOf(const std::string& folder) {
    std::vector<std::string> files;
    for (const auto& entry : std::filesystem::recursive_directory_iterator(folder)) {
      if (entry.is_regular_file()) files.push_back(entry.path());
    }
    return files;
  }
  static std::string Slurp(const std::string& path) {
    std::ifstream file(path, std::ios::binary);
    return {std::istreambuf_iterator<char>(file), {}};
  }
  static void Put(const std::string& path, const std::string& text) {
    std::ofstream(path, std::ios::binary | std::ios::trunc) << text;
  }
  static Code CodeOf(const std::string& path) {
    try {
      MarkOf(path);
    } catch (const Error& error) {
      EXPECT_NE(std::string(error.what()).find(path.substr(0, path.find_last_of('/'))),
                std::string::npos)
          << error.what();
      return error.code();
    }
    return {};
  }

  std::string folder_;
  std::string path_;
};

TEST_F(CheckpointTest, WhatIsSavedIsReadBack) {
  EXPECT_EQ(Save(1), path_ + "/000001");
  EXPECT_EQ(MarkOf(path_), 1);
  EXPECT_EQ(MarkOf(path_ + "/000001"), 1);
  EXPECT_GT(FilesOf(path_).size(), 2U) << "small files are several";
  const std::string file = folder_ + "/states";
  WriteAll(Writer::SingleFile(file, Keys()), 2);
  EXPECT_EQ(MarkOf(file), 2);
  WriteAll(Writer::SingleFile(file, Keys()), 3);
  EXPECT_EQ(MarkOf(file), 3);
  EXPECT_EQ(FilesOf(folder_).size(), FilesOf(path_).size() + 1) << "nothing is left over";
}

TEST_F(CheckpointTest, TheNewestCountsAndTwoAreKept) {
  for (const int mark : {1, 2, 3}) Save(mark);
  EXPECT_EQ(MarkOf(path_), 3);
  EXPECT_EQ(MarkOf(path_ + "/000002"), 2);
  EXPECT_FALSE(Exists(path_ + "/000001"));
}

TEST_F(CheckpointTest, AFolderOfAnotherIsLeftAlone) {
  const std::string index = "/model.safetensors.index.json";
  const std::vector<std::string> others = {
      "20240101", "100000", "000003", "0000002", "not-digits", "000500", "18446744073709551615"};
  for (const std::string& name : others) {
    std::filesystem::create_directories(path_ + "/" + name);
    Put(path_ + "/" + name + "/theirs", "x");
  }
  // Folders of another tool with an index of the same name.
  for (const char* name : {"000500", "18446744073709551615"}) {
    Put(path_ + "/" + name + index, R"({"metadata":{},"weight_map":{}})");
  }
  Put(path_ + "/000004", "a file");
  EXPECT_EQ(Save(1), path_ + "/000501");
  for (const int mark : {2, 3, 4}) Save(mark);
  EXPECT_EQ(MarkOf(path_), 4);
  EXPECT_FALSE(Exists(path_ + "/000501"));
  EXPECT_FALSE(Exists(path_ + "/000502"));
  for (const std::string& name : others) {
    EXPECT_EQ(Slurp(path_ + "/" + name + "/theirs"), "x") << name;
  }
  EXPECT_EQ(Slurp(path_ + "/000004"), "a file");
}

TEST_F(CheckpointTest, ASnapshotTakesANameThatIsFree) {
  for (const char* name : {"000001", "000003", "20240101"}) {
    std::filesystem::create_directories(path_ + "/" + name);
  }
  EXPECT_EQ(Save(1), path_ + "/000002");
  EXPECT_EQ(Save(2), path_ + "/000004");
  EXPECT_EQ(MarkOf(path_), 2);
}

TEST_F(CheckpointTest, FilesThatOthersWriteInTheFolderStay) {
  Save(1);
  const std::string states = path_ + "/states";
  Writer under_way = Writer::SingleFile(states, Keys());  // another thread may be writing
  for (const char* name : {".notes.tmp", ".000001x.tmp", ".12.tmp", ".0000012.tmp"}) {
    Put(path_ + "/" + name, "theirs");
  }
  std::filesystem::create_directories(path_ + "/.000002.tmp/half");
  Save(2);
  EXPECT_FALSE(Exists(path_ + "/.000002.tmp")) << "what a save left that ended before its commit";
  EXPECT_EQ(WriteAll(std::move(under_way), 3), states);
  EXPECT_EQ(MarkOf(states), 3);
  for (const char* name : {".notes.tmp", ".000001x.tmp", ".12.tmp", ".0000012.tmp"}) {
    EXPECT_EQ(Slurp(path_ + "/" + name), "theirs");
  }
}

TEST_F(CheckpointTest, WhatAProcessOfTheSameNumberLeftIsInNobodysWay) {
  const std::string states = folder_ + "/states";
  const auto left_over = [&] {  // the temporary name that the next save of this process would take
    const Writer writer = Writer::SingleFile(states, Keys());
    const std::string name = Names(folder_).at(0);
    const size_t dash = name.find_last_of('-');
    return Format("{}-{}.tmp", name.substr(0, dash), std::stoi(name.substr(dash + 1)) + 1);
  }();
  Put(folder_ + "/" + left_over, "half");
  WriteAll(Writer::SingleFile(states, Keys()), 1);
  EXPECT_EQ(MarkOf(states), 1);
}

TEST_F(CheckpointTest, NamesOfTensorsAreUnique) {
  std::vector<SavedKey> keys(3);
  keys[0].key = Key(KeyView("a"));
  keys[0].arrays = {"m", "master"};
  keys[0].has_master = true;
  keys[1].key = Key(KeyView("a#m"));
  keys[2].key = Key(KeyView("__metadata__"));
  const Layout layout = LayoutOf(keys, UINT64_MAX);
  std::vector<std::string> names;
  for (const Item& item : layout.items) names.push_back(item.tensor.name);
  EXPECT_EQ(names, (std::vector<std::string>{"a", "a#master", "a#m", "a#master#", "a#m#",
                                             "__metadata__#"}));
}

TEST_F(CheckpointTest, AKeyThatCannotBeReadAgainIsNotWritten) {
  for (const std::string_view text : {std::string_view("lat\xe9n"), std::string_view("p\0q", 3)}) {
    std::vector<SavedKey> keys = Keys();
    keys[1].key = Key(KeyView(text));
    EXPECT_THROW(Writer::Folder(path_, keys), Error);
    EXPECT_THROW(Writer::SingleFile(folder_ + "/states", keys), Error);
  }
  EXPECT_TRUE(FilesOf(folder_).empty());
}

TEST_F(CheckpointTest, EveryFlippedBitIsReported) {
  const std::string snapshot = Save(1);
  const std::string states = folder_ + "/states";
  WriteAll(Writer::SingleFile(states, Keys()), 2);
  std::vector<std::string> files = FilesOf(snapshot);
  files.push_back(states);
  for (const std::string& file : files) {
    const std::string whole = Slurp(file);
    for (size_t bit = 0; bit < whole.size() * 8; ++bit) {
      const auto at = static_cast<std::streamoff>(bit / 8);
      std::fstream opened(file, std::ios::in | std::ios::out | std::ios::binary);
      opened.seekp(at).put(static_cast<char>(whole[bit / 8] ^ (1 << bit % 8))).flush();
      EXPECT_THROW(Open(file == states ? states : snapshot).Verify(), Error) << file << " " << bit;
      opened.seekp(at).put(whole[bit / 8]);
    }
  }
  EXPECT_EQ(MarkOf(snapshot), 1);
}

TEST_F(CheckpointTest, EveryCutOffEndAndEveryMissingFileIsReported) {
  const std::string snapshot = Save(1);
  for (const std::string& file : FilesOf(snapshot)) {
    const std::string whole = Slurp(file);
    for (const size_t size : {size_t{0}, size_t{1}, whole.size() / 2, whole.size() - 1}) {
      Put(file, whole.substr(0, size));
      EXPECT_EQ(CodeOf(snapshot), Code::kDataLoss) << file << " " << size;
    }
    Put(file, whole + "x");
    EXPECT_EQ(CodeOf(snapshot), Code::kDataLoss) << file;
    std::filesystem::remove(file);
    EXPECT_NE(CodeOf(snapshot), Code{}) << file;
    Put(file, whole);
  }
  EXPECT_EQ(MarkOf(snapshot), 1);
}

// Otherwise a crash of the machine could lose the folder with all of its snapshots.
TEST_F(CheckpointTest, EachNewFolderIsSyncedInItsParent) {
  for (const int wanted : {0, 1, 2}) {
    int syncs = 0;
    SetFault([&](const char* call) {
      return call == std::string("fsync") && syncs++ == wanted ? EIO : 0;
    });
    const std::string path = Format("{}/{}/b/c", folder_, wanted);
    EXPECT_THROW(Writer::Folder(path, Keys()), Error);
    EXPECT_EQ(std::filesystem::exists(path), wanted == 2);
    SetFault({});
  }
}

TEST_F(CheckpointTest, AFolderThatOnlyOthersMayReadTakesANewFolder) {
  bool is_first = true;
  SetFault([&](const char* call) {
    return call == std::string("open") && std::exchange(is_first, false) ? EACCES : 0;
  });
  WriteAll(Writer::Folder(path_, Keys()), 1);
  SetFault({});
  EXPECT_FALSE(is_first);
  EXPECT_EQ(MarkOf(path_), 1);
}

TEST_F(CheckpointTest, ALinkToItselfIsReplacedByAFileOfStates) {
  const std::string states = folder_ + "/states";
  std::filesystem::create_symlink("states", states);
  WriteAll(Writer::SingleFile(states, Keys()), 1);
  EXPECT_EQ(MarkOf(states), 1);
}

// The stores of a process may save into one folder, one after the other.
TEST_F(CheckpointTest, OfEachSetOfStoresTheNewestSnapshotsStay) {
  const auto save = [&](const std::vector<uint32_t>& stores) {
    std::vector<SavedKey> keys;
    for (const uint32_t store : stores) {
      keys.push_back({.key = Key(KeyView("w")), .store = store, .shape = Shape({5})});
    }
    WriteAll(Writer::Folder(path_, keys), 1);
  };
  for (int round = 0; round < 3; ++round) {
    save({0});
    save({1});
    save({0, 2});
  }
  EXPECT_EQ(SnapshotsIn(path_).size(), 6U);
  EXPECT_EQ(OpenStore(path_, 1).path(), path_ + "/000008");
  EXPECT_EQ(OpenStore(path_, 2).path(), path_ + "/000009");
  save({0});
  const Reader newest = OpenStore(path_, 0);
  EXPECT_EQ(newest.path(), path_ + "/000010");
  EXPECT_EQ(newest.stores(), std::set{0U});
  EXPECT_FALSE(std::filesystem::exists(path_ + "/000004"));
  EXPECT_TRUE(std::filesystem::exists(path_ + "/000005"));
  EXPECT_EQ(Open(path_ + "/store-1").path(), path_ + "/000008");
  EXPECT_EQ(OpenStore(path_ + "/store-1", 0).stores(), std::set{1U});
  EXPECT_EQ(OpenStore(path_ + "/000008/store-1", 0).stores(), std::set{1U});
  EXPECT_EQ(CodeOf(path_ + "/store-3"), Code::kNotFound);
  for (const std::string& other : {path_, path_ + "/000009"}) {
    EXPECT_FALSE(FindStore(other, 3)) << other;
    try {
      OpenStore(other, 3);
      ADD_FAILURE() << other;
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), Code::kInvalidArgument);
      const std::string text = error.what();
      EXPECT_NE(text.find("there are no keys of store 3"), std::string::npos) << text;
      EXPECT_NE(text.find(other + "/store-0' names the store"), std::string::npos) << text;
    }
  }
  std::string unread;
  const auto stores_at = [&](const std::string& path) {
    return StoresAt(path, [&](const Error& error) { unread += error.what(); });
  };
  EXPECT_EQ(stores_at(path_), (std::set{0U, 1U, 2U}));
  EXPECT_EQ(stores_at(path_ + "/000009"), (std::set{0U, 2U}));
  EXPECT_EQ(stores_at(path_ + "/store-1"), std::set{1U});
  EXPECT_EQ(unread, "");
  bool has_failed = true;
  for (int failing = 0; has_failed; ++failing) {  // each open fails once
    int opened = 0;
    SetFault([&](const char* call) {
      return call == std::string("open") && opened++ == failing ? EIO : 0;
    });
    try {
      EXPECT_EQ(stores_at(path_), (std::set{0U, 1U, 2U})) << failing;
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), Code::kUnavailable);
    }
    SetFault({});
    has_failed = opened > failing;
  }
  EXPECT_EQ(unread, "");
  for (const std::string& old : {path_ + "/000005", path_ + "/000008"}) Put(IndexIn(old), "{}");
  EXPECT_EQ(stores_at(path_), (std::set{0U, 2U}));
  EXPECT_NE(unread.find("000005"), std::string::npos) << unread;
  EXPECT_NE(unread.find("000008"), std::string::npos) << unread;
}

TEST_F(CheckpointTest, KeysOfOneStoreGoIntoAnyStore) {
  std::vector<SavedKey> keys = Keys();
  for (SavedKey& key : keys) key.store = 1;
  WriteAll(Writer::Folder(path_, keys), 1);
  WriteAll(Writer::Folder(path_, keys), 2);
  const std::string states = folder_ + "/states";
  WriteAll(Writer::SingleFile(states, keys), 3);
  EXPECT_EQ(OpenStore(path_, 0).path(), path_ + "/000002");
  for (const std::string& one : {path_ + "/000001", path_ + "/store-1", states}) {
    for (const uint32_t store : {0U, 1U, 2U}) {
      EXPECT_EQ(OpenStore(one, store).stores(), std::set{1U}) << one;
    }
    EXPECT_FALSE(FindStore(one, 2)) << one;
  }
}

TEST_F(CheckpointTest, TheIndexOfAnotherProgramIsNotCalledDamaged) {
  const std::string index = IndexIn(path_ + "/000001");
  std::filesystem::create_directories(path_ + "/000001");
  Put(index, R"({"metadata": {"total_size": 8}, "weight_map": {"w": "model.safetensors"}})");
  EXPECT_EQ(CodeOf(path_), Code::kFailedPrecondition);
  EXPECT_EQ(CodeOf(path_ + "/000001"), Code::kFailedPrecondition);
  for (const char* damaged : {"{}", R"({"weight_map": {}, "format": 1})", R"({"weight_map": )"}) {
    Put(index, damaged);
    EXPECT_EQ(CodeOf(path_), Code::kDataLoss) << damaged;
  }
}

// Files of older builds have no metadata.
TEST_F(CheckpointTest, FilesNameAFormatAndThoseWithoutAreRead) {
  const std::string snapshot = Save(1);
  std::string index = Slurp(IndexIn(snapshot));
  for (const std::string& path : FilesOf(snapshot)) {
    if (path == IndexIn(snapshot)) continue;
    const std::string file = Slurp(path);
    uint64_t length = 0;
    std::memcpy(&length, file.data(), sizeof(length));
    const std::string header = file.substr(0, sizeof(length) + length);
    const std::string metadata = R"("__metadata__":{"format":"pt"},)";
    const size_t begin = header.find(metadata);
    ASSERT_NE(begin, std::string::npos) << header;
    std::string older = header.substr(sizeof(length));
    older.erase(begin - sizeof(length), metadata.size());
    older.resize(older.find_last_not_of(' ') + 1);
    older.resize((older.size() + 7) / 8 * 8, ' ');
    length = older.size();
    older.insert(0, reinterpret_cast<const char*>(&length), sizeof(length));
    Put(path, older + file.substr(header.size()));
    index.replace(index.find(CheckOf(header)), CheckOf(header).size(), CheckOf(older));
  }
  Seal(&index);
  Put(IndexIn(snapshot), index);
  EXPECT_EQ(MarkOf(path_), 1);
}

TEST_F(CheckpointTest, DamageIsNotPassedOverInFavourOfAnOlderSnapshot) {
  Save(1);
  const std::string second = Save(2);
  const std::string file = FilesOf(second)[0];
  Put(file, Slurp(file) + "x");
  EXPECT_EQ(CodeOf(path_), Code::kDataLoss);
  EXPECT_EQ(MarkOf(path_ + "/000001"), 1);
}

// Root may enter every folder, and is another user here.
TEST_F(CheckpointTest, ASnapshotThatCannotBeReachedIsNotPassedOver) {
  Save(1);
  Save(2);
  const std::string newest = path_ + "/000002";
  const auto set_mode = [](const std::string& path, unsigned mode) {
    std::filesystem::permissions(path, static_cast<std::filesystem::perms>(mode));
  };
  set_mode(folder_, 0777);
  set_mode(path_, 0777);
  const uid_t user = geteuid();
  const auto check = [&](const std::string& closed, unsigned mode, const std::string& read) {
    set_mode(closed, mode);
    ASSERT_EQ(seteuid(user == 0 ? 65534 : user), 0);
    for (const bool is_of_store : {false, true}) {
      try {
        is_of_store ? OpenStore(read, 0) : Open(read);
        ADD_FAILURE() << closed << " " << mode << " " << read;
      } catch (const Error& error) {
        EXPECT_EQ(error.code(), Code::kFailedPrecondition) << error.what();
        EXPECT_NE(std::string(error.what()).find("Permission denied"), std::string::npos);
      }
    }
    ASSERT_EQ(seteuid(user), 0);
    set_mode(closed, 0777);
  };
  for (const unsigned mode : {0U, 0444U}) {
    check(newest, mode, path_);
    check(newest, mode, newest);
    check(path_, mode, path_);
    check(folder_, mode, path_);
    check(path_, mode, path_ + "/store-0");
  }
  // A save goes on beside it, and a later load does not look at it.
  set_mode(newest, 0);
  ASSERT_EQ(seteuid(user == 0 ? 65534 : user), 0);
  EXPECT_EQ(Save(3), path_ + "/000003");
  EXPECT_EQ(MarkOf(path_), 3);
  ASSERT_EQ(seteuid(user), 0);
  set_mode(newest, 0777);
}

TEST_F(CheckpointTest, FilesFromElsewhereAreRefused) {
  EXPECT_EQ(CodeOf(path_), Code::kNotFound);
  std::filesystem::create_directory(path_);
  EXPECT_EQ(CodeOf(path_), Code::kNotFound);
  Put(path_ + "/model.safetensors.index.json", R"({"metadata":{},"weight_map":{}})");
  EXPECT_EQ(CodeOf(path_), Code::kFailedPrecondition);
  const std::string file = folder_ + "/other.safetensors";
  Put(file, HeaderOf({}, {{"format", "pt"}}));
  EXPECT_EQ(CodeOf(file), Code::kFailedPrecondition);
  for (const char* text :
       {"", "x", "12345678", "\xff\xff\xff\xff\xff\xff\xff\xff{}", "\x02\0\0\0\0\0\0\0{}"}) {
    Put(file, text);
    EXPECT_EQ(CodeOf(file), Code::kDataLoss) << text;
  }
}

TEST_F(CheckpointTest, HeadersThatLieAreRefused) {
  const std::string file = folder_ + "/file";
  const auto put = [&](const std::string& json, size_t data) {
    const uint64_t length = json.size();
    Put(file,
        std::string(reinterpret_cast<const char*>(&length), 8) + json + std::string(data, 'x'));
    const File opened = File::Open(file);
    return ReadHeader(opened).tensors.size();
  };
  EXPECT_EQ(put(R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}})", 8), 1U);
  for (
      const char* json : {
          R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[0,7]}})",
          R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[1,9]}})",
          R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}})",
          R"({"a":{"dtype":"F99","shape":[2],"data_offsets":[0,8]}})",
          R"({"a":{"dtype":"F32","shape":[-2],"data_offsets":[0,8]}})",
          R"({"a":{"dtype":"F32","shape":[4611686018427387904,4],"data_offsets":[0,8]}})",
          R"({"a":{"dtype":"F32","shape":[2]}})",
          R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]},"b":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}})",
          R"({"a":[]})",
          R"([])",
          R"({"a":{{}})",
          R"({"a":[[[[[[[[[[[[[[[[[[[[[[]]]]]]]]]]]]]]]]]]]]]]})",
      }) {
    EXPECT_THROW(put(json, 8), Error) << json;
  }
}

std::vector<SavedKey> ManyKeys(int count, size_t name_bytes) {
  std::vector<SavedKey> keys(static_cast<size_t>(count), SavedKey{.key = Key(KeyView(0))});
  for (int i = 0; i < count; ++i) {
    std::string name = std::to_string(i);
    name.resize(name_bytes, '.');
    keys[static_cast<size_t>(i)].key = Key(KeyView(name));
    keys[static_cast<size_t>(i)].shape = Shape({1});
  }
  return keys;
}

TEST_F(CheckpointTest, AnIndexOfManyKeysIsReadBack) {
  const auto keys = ManyKeys(36'000, 1000);
  Writer writer = Writer::Folder(path_, keys, 100'000);
  for (const Item& item : writer.items()) writer.Write(BytesOf(item, 1));
  const std::string saved = writer.Commit();
  EXPECT_GT(std::filesystem::file_size(saved + "/model.safetensors.index.json"), kHeaderBytesMax);
  EXPECT_EQ(Open(path_).keys().size(), keys.size());
}

TEST_F(CheckpointTest, WhatNobodyWouldReadIsRefusedAndTheSnapshotBeforeStays) {
  Save(1);
  EXPECT_THROW(
      {
        Writer writer = Writer::Folder(path_, ManyKeys(100'000, 1000), UINT64_MAX);
        for (const Item& item : writer.items()) writer.Write(BytesOf(item, 1));
      },
      Error);
  EXPECT_EQ(MarkOf(path_), 1);
}

TEST_F(CheckpointTest, AForkedProcessThatStaysDoesNotKeepTheFolderLocked) {
  Writer writer = Writer::Folder(path_, Keys(), 64);
  const pid_t child = fork();
  if (child == 0) {
    pause();
    _exit(0);
  }
  WriteAll(std::move(writer), 1);
  EXPECT_NO_THROW(Save(2));
  kill(child, SIGKILL);
  waitpid(child, nullptr, 0);
}

TEST_F(CheckpointTest, OneStoreSavesInAFolderAtATime) {
  const Writer first = Writer::Folder(path_, Keys());
  EXPECT_THROW(Writer::Folder(path_, Keys()), Error);
}

TEST_F(CheckpointTest, WhatIsNotCommittedLeavesNothing) {
  Save(1);
  const size_t files = FilesOf(folder_).size();
  {
    Writer writer = Writer::Folder(path_, Keys());
    writer.Write(BytesOf(writer.items()[0], 2));
  }
  {
    Writer writer = Writer::SingleFile(folder_ + "/states", Keys());
    writer.Write(BytesOf(writer.items()[0], 2));
  }
  EXPECT_EQ(FilesOf(folder_).size(), files);
  EXPECT_EQ(MarkOf(path_), 1);
}

// Returns the number of system calls of a save.
template <typename F>
int CallsOf(F save) {
  int count = 0;
  SetFault([&](const char*) {
    ++count;
    return 0;
  });
  save();
  SetFault({});
  return count;
}

TEST_F(CheckpointTest, WhicheverCallFailsTheSnapshotBeforeStays) {
  const std::string states = folder_ + "/states";
  Save(1);
  WriteAll(Writer::SingleFile(states, Keys()), 1);
  for (const bool is_folder : {true, false}) {
    const auto save = [&](int mark) {
      if (is_folder) {
        Save(mark);
      } else {
        WriteAll(Writer::SingleFile(states, Keys()), mark);
      }
    };
    const std::string& path = is_folder ? path_ : states;
    const int calls = CallsOf([&] { save(1); });
    ASSERT_GT(calls, 5);
    for (const int error : {ENOSPC, EIO}) {
      for (int n = 1; n <= calls; ++n) {
        int count = 0;
        SetFault([&](const char*) { return ++count == n ? error : 0; });
        bool failed = false;
        try {
          save(2);
        } catch (const Error& caught) {
          failed = true;
          EXPECT_EQ(caught.code(), error == ENOSPC ? Code::kResourceExhausted : Code::kUnavailable);
        }
        SetFault({});
        const int mark = MarkOf(path);
        EXPECT_TRUE(mark == 1 || mark == 2) << n;
        if (!failed) {
          EXPECT_EQ(mark, 2) << n;
        }
        save(1);
        ASSERT_EQ(MarkOf(path), 1) << n;
      }
    }
    int count = 0;
    SetFault([&](const char*) { return ++count % 2 == 0 ? kHalf : 0; });
    save(3);
    EXPECT_EQ(MarkOf(path), 3) << "writes and reads that do half of their work";
    SetFault({});
  }
}

TEST_F(CheckpointTest, WithoutMemoryASaveFailsAndChangesNothing) {
  const std::string states = folder_ + "/states";
  for (int mark = 0; mark < 2; ++mark) Save(1);  // the next save removes the first of them
  WriteAll(Writer::SingleFile(states, Keys()), 1);
  for (const bool is_folder : {true, false}) {
    test::Attempt attempt{.ran_out = true};
    for (int allocations = 0; attempt.ran_out; ++allocations) {
      const size_t files = FilesOf(folder_).size();
      attempt = test::WithMemoryFor(allocations, [&] {
        if (is_folder) {
          Save(2);
        } else {
          WriteAll(Writer::SingleFile(states, Keys()), 2);
        }
      });
      const std::string& path = is_folder ? path_ : states;
      ASSERT_EQ(MarkOf(path), attempt.succeeded ? 2 : 1) << allocations;
      if (!attempt.succeeded) {
        ASSERT_EQ(FilesOf(folder_).size(), files) << allocations;
      } else if (attempt.ran_out) {  // the save went on without removing old snapshots
        Save(1);
      }
    }
  }
}

TEST_F(CheckpointTest, WithoutMemoryASnapshotIsReadOrAnError) {
  const std::string path = Save(1);
  std::filesystem::create_directories(path + "/folder/of/others");
  Put(path + "/folder/of/others/file", "text");
  test::Attempt attempt{.ran_out = true};
  for (int allocations = 0; attempt.ran_out; ++allocations) {
    attempt = test::WithMemoryFor(allocations, [&] { Open(path_).Verify(); });
    EXPECT_NE(attempt.succeeded, attempt.ran_out);
  }
  // A folder that is half removed is removed by the next call.
  attempt = {.ran_out = true};
  for (int allocations = 0; attempt.ran_out; ++allocations) {
    attempt = test::WithMemoryFor(allocations, [&] { RemoveAll(path_); });
    EXPECT_NE(attempt.succeeded, attempt.ran_out);
  }
  EXPECT_FALSE(Exists(path_));
}

TEST_F(CheckpointTest, WhereverAProcessIsKilledASnapshotIsThere) {
  const std::string states = folder_ + "/states";
  Save(1);
  WriteAll(Writer::SingleFile(states, Keys()), 1);
  for (const bool is_folder : {true, false}) {
    const auto save = [&](int mark) {
      if (is_folder) {
        Save(mark);
      } else {
        WriteAll(Writer::SingleFile(states, Keys()), mark);
      }
    };
    const std::string& path = is_folder ? path_ : states;
    const int calls = CallsOf([&] { save(1); });
    bool old_was_there = false;
    bool new_was_there = false;
    for (int n = 1; n <= calls; ++n) {
      const pid_t child = fork();
      if (child == 0) {
        int count = 0;
        SetFault([&](const char*) {
          if (++count == n) raise(SIGKILL);
          return 0;
        });
        save(2);
        _exit(0);
      }
      int status = 0;
      ASSERT_EQ(waitpid(child, &status, 0), child);
      ASSERT_TRUE(WIFSIGNALED(status)) << n;
      const int mark = MarkOf(path);
      ASSERT_TRUE(mark == 1 || mark == 2) << n;
      (mark == 1 ? old_was_there : new_was_there) = true;
      save(1);
      ASSERT_EQ(MarkOf(path), 1) << n;
    }
    EXPECT_TRUE(old_was_there && new_was_there);
  }
  for (const std::string& name : Names(path_)) EXPECT_NE(name[0], '.') << "the next one tidies up";
}

// SIGXFSZ has its default action, which would end the program.
TEST_F(CheckpointTest, AFileAtTheLimitOfItsSizeIsAnErrorAndTheProgramLives) {
  rlimit before{};
  getrlimit(RLIMIT_FSIZE, &before);
  const auto handler = std::signal(SIGXFSZ, SIG_DFL);
  rlimit small = before;
  small.rlim_cur = 1000;
  const std::vector<std::byte> bytes(2000);
  File file = File::Create(folder_ + "/limited");
  setrlimit(RLIMIT_FSIZE, &small);
  std::optional<Error> failure;
  try {
    file.Write(bytes);
  } catch (const Error& error) {
    failure = error;
  }
  setrlimit(RLIMIT_FSIZE, &before);
  std::signal(SIGXFSZ, handler);
  ASSERT_TRUE(failure.has_value());
  EXPECT_EQ(failure->code(), Code::kResourceExhausted) << failure->what();
}

TEST_F(CheckpointTest, AFolderThatCannotBeWrittenIsAnError) {
  Put(folder_ + "/file", "x");
  try {
    Writer::Folder(folder_ + "/file/snapshots", Keys());
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), Code::kFailedPrecondition) << error.what();
    EXPECT_NE(std::string(error.what()).find(folder_), std::string::npos) << error.what();
  }
  EXPECT_THROW(Writer::SingleFile(folder_ + "/none/states", Keys()), Error);
}

}  // namespace
}  // namespace tkv::checkpoint
