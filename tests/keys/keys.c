/* What C takes as keys:  keys write|read TABLE FOLDER; see tests/cluster/test_keys.py. */

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tkv/tkv.h"

static const tkv_context kCpu = {TKV_CPU, 0};
static const int64_t kShape[] = {1};

static void must(tkv_code code, tkv_error** error) {
  if (code == TKV_OK) return;
  fprintf(stderr, "%s: %s\n", tkv_code_name(code), tkv_error_message(*error));
  exit(1);
}

static tkv_array* full(double value) {
  tkv_error* error = NULL;
  tkv_array* array = NULL;
  must(tkv_array_full(kShape, 1, TKV_F32, kCpu, value, &array, &error), &error);
  return array;
}

/* The bytes of digits to `text`, with a zero behind them; their number. */
static size_t bytes_of(const char* digits, char* text) {
  size_t count = 0;
  for (; digits[0] != '\0' && digits[0] != '-'; digits += 2) {
    unsigned byte = 0;
    sscanf(digits, "%2x", &byte);
    text[count++] = (char)byte;
  }
  text[count] = '\0';
  return count;
}

static void write_keys(tkv_store* store, const char* table) {
  char line[8192], digits[4096], text[2048];
  FILE* const file = fopen(table, "r");
  if (file == NULL) exit(2);
  for (int number = 0; fgets(line, sizeof line, file) != NULL; ++number) {
    if (line[0] == '#') continue;
    sscanf(line, "%4095s", digits);
    tkv_error* error = NULL;
    tkv_array* value = full(number);
    const tkv_item item = {.key = {text, 0}, .arrays = &value, .array_count = 1};
    const size_t size = bytes_of(digits, text);
    const int is_made = strlen(text) == size && tkv_store_init(store, &item, 1, &error) == TKV_OK;
    printf("%s %s\n", digits, is_made ? "made" : "refused");
    tkv_error_release(error);
    tkv_array_release(value);
  }
  fclose(file);
}

static void read_keys(tkv_store* store) {
  tkv_error* error = NULL;
  tkv_keys* keys = NULL;
  must(tkv_store_keys(store, &keys, &error), &error);
  for (size_t i = 0; i < tkv_keys_size(keys); ++i) {
    const tkv_key key = tkv_keys_data(keys)[i];
    tkv_array* out = full(0);
    const tkv_item item = {.key = key, .arrays = &out, .array_count = 1};
    must(tkv_store_pull(store, &item, 1, &error), &error);
    float value = 0;
    must(tkv_array_read(out, &value, sizeof value, &error), &error);
    for (const char* c = key.text; *c != '\0'; ++c) printf("%02x", (unsigned char)*c);
    printf("%s %.0f\n", key.text[0] == '\0' ? "-" : "", (double)value);
    tkv_array_release(out);
  }
  tkv_keys_release(keys);
}

int main(int count, char** words) {
  if (count != 4) return 2;
  tkv_error* error = NULL;
  tkv_store* store = NULL;
  must(tkv_store_create("local", NULL, &store, &error), &error);
  if (strcmp(words[1], "write") == 0) {
    write_keys(store, words[2]);
    tkv_text* path = NULL;
    must(tkv_store_save(store, words[3], &path, &error), &error);
    tkv_text_release(path);
  } else {
    must(tkv_store_restore(store, words[3], &error), &error);
    read_keys(store);
  }
  tkv_store_release(store);
  return 0;
}
