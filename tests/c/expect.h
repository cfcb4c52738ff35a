/* What a check says where it does not hold, and how many did not. */
#include "kiln.h"

#include <stdio.h>
#include <string.h>

static int failures;
#define EXPECT(condition)                                                              \
  do {                                                                                 \
    if (!(condition)) {                                                                \
      printf("line %d: %s (last error: %s)\n", __LINE__, #condition, kiln_last_error()); \
      failures++;                                                                      \
    }                                                                                  \
  } while (0)
#define FAILS(call, status, words)                                    \
  do {                                                                \
    EXPECT((call) == (status));                                       \
    EXPECT(strstr(kiln_last_error(), (words)) != NULL);               \
  } while (0)
