// Which names libtkv shows where it is a shared library: all others are hidden.

#pragma once

#define TKV_API __attribute__((visibility("default")))
