#version 450
#extension GL_GOOGLE_include_directive : require

// Short convolution and token shift.
//
//     y_t[c] = f( bias[c] + Σ_w weight[w][c] · x_{t − (width − 1) + w}[c] )
//     y_t[c] = x_{t − 1}[c]                                                   token shift
//
// Work groups: sequences, groups of channels, pieces of PIECE tokens. An invocation has one
// channel. Only the first piece of a sequence reads the old tail, and it alone writes the tails,
// after its outputs: they need only inputs and the old tail. D_K is width − 1; D_V counts channels.

#include "scan.glsl"

layout(constant_id = 6) const uint PIECE = 1;
layout(constant_id = 7) const bool SHIFT = false; // no weight
layout(constant_id = 8) const bool BIAS = false;
layout(constant_id = 9) const bool SILU = false;

TOKENS(x, 2, 10)
TENSOR(weight, 3) // [D_V][D_K + 1]
TENSOR(bias, 4)
OUTPUT(5)

// Channel c of input i of the sequence; i < 0 counts back into the tail.
float inp(const sequence seq, int i, uint c) {
    if (i >= 0) {
        return x[x_row(0, 0, uint(seq.first + i)) + c];
    }
    return seq.slot_in < 0 ? 0.0 : state[head_at(seq.slot_in, 0, 0) + uint(int(D_K) + i) * D_V + c];
}

// The tail after all but the last `back` tokens. Element w comes from element w + count − back of
// the old tail or from an input, so that ascending order may replace the old tail.
void store_tail(const sequence seq, int slot, int back, uint c) {
    for (uint w = 0; w < D_K; ++w) {
        state[head_at(slot, 0, 0) + w * D_V + c] =
                inp(seq, seq.count - back - int(D_K) + int(w), c);
    }
}

void main() {
    const uint c = gl_WorkGroupID.y * gl_WorkGroupSize.x + gl_LocalInvocationIndex;
    if (c >= D_V) {
        return;
    }
    const bool first = gl_WorkGroupID.z == 0;
    sequence   seq;
    if (!sequence_get(gl_WorkGroupID.x, seq)) {
        const uvec2 tokens = sequence_tokens(seq);
        for (uint t = tokens.x; first && t < tokens.y; ++t) {
            put(0, t, c, nan());
        }
        return;
    }
    const int begin = int(gl_WorkGroupID.z * PIECE);
    const int end = min(begin + int(PIECE), seq.count);
    for (int n = begin; n < end; ++n) {
        float y = BIAS ? bias[p.offset[4] + c] : 0.0;
        if (SHIFT) {
            y = inp(seq, n - 1, c);
        } else {
            for (uint w = 0; w <= D_K; ++w) {
                y = fma(weight[p.offset[3] + c * (D_K + 1) + w], inp(seq, n - int(D_K) + int(w), c),
                        y);
            }
        }
        put(0, uint(seq.first + n), c, SILU ? y / (1.0 + scan_exp(-y)) : y);
    }
    // the tail that replaces the old one comes last
    int in_place = -1;
    for (int back = 0; first && back <= min(p.n_snap, seq.count); ++back) {
        const int slot = slot_after(seq, seq.count - back);
        if (slot >= 0 && slot == seq.slot_in) {
            in_place = back;
        } else if (slot >= 0) {
            store_tail(seq, slot, back, c);
        }
    }
    if (in_place >= 0) {
        store_tail(seq, seq.slot_in, in_place, c);
    }
}
