#include "bootstrap/pmix/pmix.h"

#include <dlfcn.h>
#include <pmix.h>

#include <condition_variable>
#include <cstdlib>
#include <cstring>
#include <map>
#include <mutex>

#include "base/format.h"
#include "base/wait.h"

namespace tkv {
namespace {

// The functions of this machine's PMIx library, of any version.
struct Library {
  decltype(&PMIx_Init) init = nullptr;
  decltype(&PMIx_Finalize) finalize = nullptr;
  decltype(&PMIx_Put) put = nullptr;
  decltype(&PMIx_Commit) commit = nullptr;
  decltype(&PMIx_Fence_nb) fence = nullptr;
  decltype(&PMIx_Get) get = nullptr;
  decltype(&PMIx_Error_string) error_string = nullptr;

  Library() {
    void* const handle = dlopen("libpmix.so.2", RTLD_NOW | RTLD_LOCAL);
    if (handle == nullptr) {
      throw Fail(Code::kUnavailable, "PMIx: {}; install libpmix2", dlerror());
    }
    Find(handle, "PMIx_Init", &init);
    Find(handle, "PMIx_Finalize", &finalize);
    Find(handle, "PMIx_Put", &put);
    Find(handle, "PMIx_Commit", &commit);
    Find(handle, "PMIx_Fence_nb", &fence);
    Find(handle, "PMIx_Get", &get);
    Find(handle, "PMIx_Error_string", &error_string);
  }

 private:
  template <typename Function>
  static void Find(void* handle, const char* name, Function* function) {
    *function = reinterpret_cast<Function>(dlsym(handle, name));
    if (*function == nullptr) throw Fail(Code::kUnavailable, "PMIx: the library has no {}", name);
  }
};

// The result of a fence.  The library's callback writes it, perhaps after the last waiting thread
// has left.
struct Fence {
  std::mutex mutex;
  std::condition_variable changed;
  bool is_done = false;
  pmix_status_t status = PMIX_SUCCESS;
};

class Group final : public PmixGroup {
 public:
  Group() {
    Check("PMIx_Init", library_.init(&self_, nullptr, 0));
    try {
      pmix_proc_t all = self_;
      all.rank = PMIX_RANK_WILDCARD;
      pmix_value_t* value = nullptr;
      Check("the size of the job", library_.get(&all, PMIX_JOB_SIZE, nullptr, 0, &value));
      size_ = static_cast<int>(value->data.uint32);
      std::free(value);
    } catch (...) {
      library_.finalize(nullptr, 0);
      throw;
    }
  }
  ~Group() override {
    if (birth_ == ForkGeneration()) library_.finalize(nullptr, 0);
  }
  Group(const Group&) = delete;
  Group& operator=(const Group&) = delete;

  int rank() const override { return static_cast<int>(self_.rank); }
  int size() const override { return size_; }

  void Put(const std::string& key, const std::string& value) override {
    if (const auto found = put_.find(key); found != put_.end() && found->second == value) return;
    pmix_value_t text;
    std::memset(&text, 0, sizeof(text));
    text.type = PMIX_STRING;
    text.data.string = const_cast<char*>(value.c_str());
    Check("PMIx_Put", library_.put(PMIX_GLOBAL, key.c_str(), &text));
    put_[key] = value;
    has_news_ = true;
  }

  void Exchange(std::chrono::milliseconds longest,
                const std::function<void()>& interrupt) override {
    const auto deadline = DeadlineAfter(longest);
    do {
      // A fence whose caller ran out of patience continues, and the other processes take part in
      // it.  Wait for its end before beginning a new one.
      if (under_way_ == nullptr) under_way_ = Begin();
      const std::shared_ptr<Fence> fence = under_way_;
      std::unique_lock lock(fence->mutex);
      if (!WaitUntil(&lock, &fence->changed, deadline, interrupt, [&] { return fence->is_done; })) {
        throw Fail(
            Code::kDeadlineExceeded,
            "not all {} processes of the group (those that one mpirun or srun has started) are "
            "here after {} ms; each has to create the store",
            size_, longest.count());
      }
      under_way_ = nullptr;
      Check("PMIx_Fence", fence->status);
    } while (has_news_);
  }

  std::string Get(int rank, const std::string& key) override {
    pmix_proc_t of = self_;
    of.rank = static_cast<pmix_rank_t>(rank);
    // A value that is missing after an exchange will not arrive later.
    pmix_info_t at_once;
    std::memset(&at_once, 0, sizeof(at_once));
    std::strncpy(at_once.key, PMIX_IMMEDIATE, sizeof(at_once.key) - 1);
    at_once.value.type = PMIX_BOOL;
    at_once.value.data.flag = true;
    pmix_value_t* value = nullptr;
    const pmix_status_t status = library_.get(&of, key.c_str(), &at_once, 1, &value);
    if (status != PMIX_SUCCESS) {
      throw Fail(Code::kNotFound, "PMIx: process {} has put no {}: {}", rank, key,
                 library_.error_string(status));
    }
    if (value->type != PMIX_STRING) {
      throw Fail(Code::kNotFound, "PMIx: process {} has put {}, which is no text", rank, key);
    }
    const std::string text = value->data.string;
    std::free(value->data.string);
    std::free(value);
    return text;
  }

 private:
  std::shared_ptr<Fence> Begin() {
    has_news_ = false;
    Check("PMIx_Commit", library_.commit());
    pmix_info_t collect;
    std::memset(&collect, 0, sizeof(collect));
    std::strncpy(collect.key, PMIX_COLLECT_DATA, sizeof(collect.key) - 1);
    collect.value.type = PMIX_BOOL;
    collect.value.data.flag = true;
    pmix_proc_t all = self_;
    all.rank = PMIX_RANK_WILDCARD;
    const auto fence = std::make_shared<Fence>();
    auto* const held = new std::shared_ptr<Fence>(fence);
    const pmix_status_t begun = library_.fence(
        &all, 1, &collect, 1,
        [](pmix_status_t status, void* data) {
          const std::unique_ptr<std::shared_ptr<Fence>> done(
              static_cast<std::shared_ptr<Fence>*>(data));
          std::lock_guard lock((*done)->mutex);
          (*done)->is_done = true;
          (*done)->status = status;
          (*done)->changed.notify_all();
        },
        held);
    if (begun != PMIX_SUCCESS) {
      delete held;
      Check("PMIx_Fence", begun);
    }
    return fence;
  }

  void Check(const char* what, pmix_status_t status) const {
    if (status == PMIX_SUCCESS) return;
    throw Fail(Code::kUnavailable, "{}: {}", what, library_.error_string(status));
  }

  const Library library_;
  const unsigned birth_ = ForkGeneration();
  pmix_proc_t self_{};
  int size_ = 0;
  std::map<std::string, std::string> put_;
  // Some value was put after the last commit.
  bool has_news_ = false;
  std::shared_ptr<Fence> under_way_;
};

}  // namespace

bool PmixGroup::IsThere(std::string* why) {
  try {
    Library();
    return true;
  } catch (const Error& error) {
    *why = error.what();
    return false;
  }
}

std::unique_ptr<PmixGroup> PmixGroup::Join() { return std::make_unique<Group>(); }

}  // namespace tkv
