#include <gtest/gtest.h>

#include "tkv/error.h"
#include "tkv/job.h"

namespace tkv {
namespace {

Job JobAt(const std::string& head, const std::string& id) {
  Job job;
  job.head = head;
  job.id = id;
  return job;
}

TEST(JobUrl, OfOneHostAndOfSeveral) {
  EXPECT_EQ(UrlOf(JobAt("tcp:10.0.0.1:7000", "job")), "tkv://10.0.0.1:7000/job");
  EXPECT_EQ(UrlOf(JobAt("tcp:a:1,tcp:[::1]:2", "j")), "tkv://a:1,[::1]:2/j");
  EXPECT_EQ(UrlOf(JobAt("unix:4f/tkv-1", "j 1/2")), "tkv://unix:4f%2Ftkv-1/j%201%2F2");
  EXPECT_EQ(UrlOf(JobAt("", "j")), "") << "nobody else can find it";
}

TEST(JobUrl, NamesTheSameJobAgain) {
  for (const std::string head :
       {"tcp:10.0.0.1:7000", "tcp:[fe80::1]:65535", "unix:4f/tkv-1,tcp:host-2:7", "own:%,x"}) {
    for (const std::string id : {"job", "dmlc-10.0.0.1-9000", "ä/ö %41", ","}) {
      const std::string url = UrlOf(JobAt(head, id));
      if (head == "own:%,x") continue;  // commas are between addresses
      const Job job = JobOfUrl(url);
      EXPECT_EQ(job.head, head) << url;
      EXPECT_EQ(job.id, id) << url;
    }
  }
}

TEST(JobUrl, WhatIsNoneSaysWhy) {
  const auto why = [](const char* url) -> std::string {
    try {
      JobOfUrl(url);
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), Code::kInvalidArgument);
      return error.what();
    }
    return "taken";
  };
  EXPECT_NE(why("http://a:1/j").find("does not begin with tkv://"), std::string::npos);
  EXPECT_NE(why("tkv://a:1").find("names no job"), std::string::npos);
  EXPECT_NE(why("tkv://a:1/").find("names no job"), std::string::npos);
  EXPECT_NE(why("tkv:///j").find("names no host"), std::string::npos);
  EXPECT_NE(why("tkv://a:1/%4").find("no byte"), std::string::npos);
  EXPECT_NE(why("tkv://a:1/%zz").find("no byte"), std::string::npos);
}

}  // namespace
}  // namespace tkv
