// Marks the names that libtkv exports when it is built as a shared library; all others are hidden.

#pragma once

#define TKV_API __attribute__((visibility("default")))
