/* Reads an image from standard input, one pixel (0 ... 1) for each step, and prints the digit that the model sees. */
#include <stdio.h>

#include "digits.h"

int main(void)
{
    static digits_state state;
    float x[DIGITS_INPUTS], y[DIGITS_OUTPUTS];
    int steps = 0, best = 0;

    digits_reset(&state);
    for (;;) {
        for (int i = 0; i < DIGITS_INPUTS; i++) {
            if (scanf("%f", &x[i]) != 1) {
                goto end; /* of the image */
            }
        }
        digits_step(&state, x, y);
        steps++;
    }
end:
    if (steps == 0) {
        fputs("read_digit: expected numbers on standard input\n", stderr);
        return 1;
    }
    for (int i = 1; i < DIGITS_OUTPUTS; i++) {
        best = y[i] > y[best] ? i : best;
    }
    printf("read in %d steps: %d\n", steps, best);
    return 0;
}
