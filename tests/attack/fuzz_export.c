/* A generated model under libFuzzer: resets and steps with any floats, also those that are no numbers, or any symbols. */
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "model.h"

#ifndef MODEL_SYMBOLS
#define WIDTH MODEL_INPUTS
#endif

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    /* As large as they are said to be: the sanitizer sees an access behind them. */
    model_state state;
    float y[MODEL_OUTPUTS];
    model_reset(&state);
    while (size > 0) {
        uint8_t choice = *data++;
        size--;
        if (choice % 16 == 0) {
            model_reset(&state);
            continue;
        }
        float *wanted = choice % 16 == 1 ? NULL : y;
#ifdef MODEL_SYMBOLS
        int x = 0;
        size_t taken = size < sizeof x ? size : sizeof x;
        memcpy(&x, data, choice % 2 ? taken : (taken > 0));
        model_step(&state, x, wanted);
#else
        float x[WIDTH] = {0};
        size_t taken = size < sizeof x ? size : sizeof x;
        memcpy(x, data, taken);
        model_step(&state, x, wanted);
#endif
        data += taken;
        size -= taken;
    }
    return 0;
}
