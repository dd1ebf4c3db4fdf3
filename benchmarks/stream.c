/* Runs sequences through an exported model, without the price of a call from Python for each step. */
#include "model.h"

/* x (sequences, steps, inputs); y (sequences, steps, outputs), or (sequences, outputs) with last_only. */
void run_sequences(const float *x, float *y, long sequences, long steps, int last_only)
{
    model_state state;
    for (long n = 0; n < sequences; n++) {
        model_reset(&state);
        for (long t = 0; t < steps; t++) {
            const int wanted = !last_only || t == steps - 1;
            model_step(&state, x, wanted ? y : 0);
            x += MODEL_INPUTS;
            y += wanted ? MODEL_OUTPUTS : 0;
        }
    }
}

/* x (steps, inputs) into a program whose output is new in some steps only; y is that of the last one. */
void run_sequence(const float *x, float *y, long steps)
{
    model_state state;
    model_reset(&state);
    for (long t = 0; t < steps; t++) {
        model_step(&state, x + t * MODEL_INPUTS, y);
    }
}
