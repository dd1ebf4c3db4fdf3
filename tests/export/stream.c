/* Feeds a model a sequence and prints the bits of every output: on this machine, and under qemu. */
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include "model.h"

#include "inputs.h"

static model_state state;

int main(void)
{
    float y[MODEL_OUTPUTS];
    model_reset(&state);
    for (int t = 0; t < STEPS; t++) {
#ifdef MODEL_SYMBOLS
        if (model_step(&state, inputs[t], y) != 0) {
            return 1;
        }
#else
        model_step(&state, inputs + t * WIDTH, y);
#endif
        for (int i = 0; i < MODEL_OUTPUTS; i++) {
            uint32_t bits;
            memcpy(&bits, &y[i], sizeof bits);
            printf("%08lx ", (unsigned long)bits);
        }
        printf("\n");
    }
    return 0;
}
