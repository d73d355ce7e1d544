#include "tkv/program.h"

#include <gtest/gtest.h>

#include <cmath>

#include "base/format.h"
#include "tests/arrays.h"
#include "tkv/optimizer.h"
#include "update/builtin.h"
#include "update/program_body.h"

namespace tkv {
namespace {

std::string Refusal(std::string_view text) {
  const auto failure = test::FailureOf([&] { Program::Parse(text); });
  EXPECT_EQ(failure.code, Code::kInvalidArgument) << text;
  return failure.message;
}

TEST(Program, BuiltinsRoundTripThroughText) {
  for (const std::string& name : BuiltinOptimizers()) {
    const Program program = BuiltinProgram(name);
    EXPECT_EQ(program.name(), name);
    EXPECT_EQ(Program::Parse(program.ToText()).ToText(), program.ToText());
  }
  EXPECT_FAILS(Code::kNotFound, BuiltinProgram("sgdd"));
}

TEST(Program, CommentsAndSpacesDoNotMatter) {
  const Program program = Program::Parse(
      "# a comment of more words than any statement\n\n  program   p\r\nw =  add value\tsum\nvalue "
      "<- w");
  EXPECT_EQ(program.ToText(), "program p\nw = add value sum\nvalue <- w\n");
}

TEST(Program, ParamsKeepTheirDefaults) {
  const Program program =
      Program::Parse("program p\nparam a 0.5\nparam b -inf\nw = mul sum a\nvalue <- w\n");
  ASSERT_EQ(program.params().size(), 2U);
  EXPECT_EQ(program.params()[0].value, 0.5);
  EXPECT_EQ(program.params()[1].value, -INFINITY);
}

TEST(Program, EveryMistakeNamesItsLine) {
  EXPECT_EQ(Refusal(""), "program, line 0: there is no 'program NAME'");
  EXPECT_EQ(Refusal("w = add value sum\n"), "program, line 1: 'program NAME' comes first");
  EXPECT_EQ(Refusal("program p\n"), "program, line 1: nothing is stored in 'value'");
  EXPECT_EQ(Refusal("program p\nw = add value\n"),
            "program, line 2: 'add' takes 2 operands, here are 1");
  EXPECT_EQ(
      Refusal("program p\nw = plus value sum\n"),
      "program, line 2: 'plus' is no operation; there are reduce_sum normal add sub mul min max lt "
      "le gt ge eq ne neg abs select div sqrt sign pow floor exp log cos");
  EXPECT_EQ(Refusal("program p\nw = dvi value sum\n"),
            "program, line 2: 'dvi' is no operation; did you mean 'div'?");
  EXPECT_EQ(
      Refusal("program p\nw = sum + value\n"),
      "program, line 2: 'sum' is a value; the operation comes before its operands: add sum ...");
  EXPECT_EQ(Refusal("program p\nw = add value x\n"), "program, line 2: 'x' is not defined");
  EXPECT_EQ(Refusal("program p\nparam rate 1\nw = mul value rte\n"),
            "program, line 3: 'rte' is not defined; did you mean 'rate'?");
  EXPECT_EQ(Refusal("program p\nw = add value sum\nw = neg w\n"),
            "program, line 3: 'w' is defined twice");
  EXPECT_EQ(Refusal("program p\nsum = neg value\n"), "program, line 2: 'sum' is defined twice");
  EXPECT_EQ(Refusal("program p\nstate s\nparam a 1\n"),
            "program, line 3: program, params, states and code come in this order");
  EXPECT_EQ(Refusal("program p\nparam a x\n"), "program, line 2: 'x' is no number");
  EXPECT_EQ(Refusal("program p\nparam a nan\n"), "program, line 2: 'nan' is no number");
  EXPECT_EQ(
      Refusal("program p\n1a = neg value\n"),
      "program, line 2: '1a' is no name; one has letters, digits and _, no digit first, and at "
      "most 64 bytes");
  EXPECT_EQ(Refusal("program p\nsum <- value\n"),
            "program, line 2: 'sum' is neither 'value' nor a state");
  EXPECT_EQ(Refusal("program p\nvalue <- sum\nvalue <- sum\n"),
            "program, line 3: 'value' is stored twice");
  EXPECT_EQ(Refusal("program p\na = neg t\nvalue <- a\n"),
            "program, line 3: 'a' is a scalar, an array is needed");
  EXPECT_EQ(Refusal("program p\na = pow sum 2\n"), "program, line 2: 'pow' is of scalars only");
  EXPECT_EQ(Refusal("program p\na = reduce_sum t\n"),
            "program, line 2: 't' is a scalar, an array is needed");
  EXPECT_EQ(Refusal("program p\na = reduce_sum sum value\n"),
            "program, line 2: 'reduce_sum' takes 1 operands, here are 2");
  EXPECT_EQ(Refusal("program p\na = reduce_sum sum\nvalue <- a\n"),
            "program, line 3: 'a' is a scalar, an array is needed");
  EXPECT_EQ(Refusal("program p\na = normal 1 sum\n"),
            "program, line 2: 'sum' is an array, a scalar is needed");
  EXPECT_EQ(Refusal("program p\na = normal 1\n"),
            "program, line 2: 'normal' takes 2 operands, here are 1");
  EXPECT_EQ(Refusal("program p\nnonsense here\n"),
            "program, line 2: 'nonsense here' is no statement; there are program NAME, param NAME "
            "NUMBER, state NAME, scalar NAME NUMBER, NAME = OP OPERAND... "
            "and TARGET <- NAME");
}

TEST(Program, SizesAreBounded) {
  std::string text = "program p\n";
  for (int i = 0; i < 257; ++i) text += Format("a{} = neg sum\n", i);
  EXPECT_NE(Refusal(text).find("more than 256 instructions"), std::string::npos);
  EXPECT_NE(Refusal(std::string(70000, ' ')).find("70000 bytes"), std::string::npos);
  std::string states = "program p\n";
  for (int i = 0; i < 17; ++i) states += Format("state s{}\n", i);
  EXPECT_NE(Refusal(states).find("more than 16 states"), std::string::npos);
  EXPECT_NE(Refusal("program " + std::string(65, 'a') + "\n").find("is no name"),
            std::string::npos);
}

TEST(Program, ScalarsAreComputedInF64WithExactPowers) {
  const Program program = Program::Parse(
      "program p\nparam b 0.999\npower = pow b t\nc = sub 1 power\nhalf = pow 2 -3\nw = mul sum "
      "c\nvalue <- w\n");
  std::vector<double> out(program.body().scalars.size());
  const double params[] = {0.999};
  EvaluateScalars(program.body(), params, nullptr, 3, 1, out.data());
  const auto scalar = [&](std::string_view name) {
    for (size_t i = 0; i < out.size(); ++i) {
      if (program.body().scalars[i].name == name) return out[i];
    }
    return -1.0;
  };
  EXPECT_EQ(scalar("power"), 0.999 * (0.999 * 0.999));
  EXPECT_EQ(scalar("half"), 0.125);
}

TEST(Program, OnlyTheTextOfABuiltinGetsItsKernel) {
  EXPECT_EQ(BuiltinProgram("adam").body().fused, kernels::Fused::kAdam);
  EXPECT_EQ(BuiltinProgram("adam").body().fused_scalars.size(), 9U);
  std::string text = BuiltinProgram("sgd").ToText();
  text.replace(text.find("sub value step"), 14, "add value step");
  EXPECT_EQ(Program::Parse(text).body().fused, kernels::Fused::kNone);
}

}  // namespace
}  // namespace tkv
