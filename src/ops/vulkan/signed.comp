#version 450
#extension GL_GOOGLE_include_directive : require

// Signed-gate scan, token by token, with the state in registers.
//
//     S ← A_t ∘ S + b_t x_tᵀ ,   y_t = scale · Sᵀ c_t
//
// or, with a bonus, y_t = scale · (S + (bonus ∘ b_t) x_tᵀ)ᵀ c_t before the update.
//
// Work groups: sequences · heads, groups of columns. mLSTM takes two dispatches. In the first,
// every column computes gates and normalizer for itself and leaves n and m alone, which the others
// still read. The second has one column and stores them.

#include "scan.glsl"

// enum signed_scan_kind
const uint KIND_NONE = 0, KIND_HEAD = 1, KIND_CHANNEL = 2, KIND_ELEMENT = 3, KIND_SCALAR = 4,
           KIND_MLSTM = 5;

layout(constant_id = 6) const uint KIND = 0;
layout(constant_id = 7) const bool BONUS = false;
layout(constant_id = 8) const bool TWO_EXP_M1 = false;
layout(constant_id = 9) const bool NORMALIZER = false; // the second dispatch of mLSTM

TOKENS(c, 2, 10)
TOKENS(b, 3, 14)
TOKENS(x, 4, 18)
TOKENS(gate, 5, 22) // gate, dt or log_f
TOKENS(aux, 6, 26)  // bonus, log_i, or A: a row per key channel, a "token" per column
OUTPUT(7)

const bool MLSTM = KIND == KIND_MLSTM;
const uint HEAD_SIZE = D_K * D_V + (MLSTM ? D_K + 1 : 0); // S, then n, then m

float decay(float dt, float A) {
    const float e = scan_exp(dt * A);
    return TWO_EXP_M1 ? fma(2.0, e, -1.0) : e;
}

// a + b = sum + rest, exactly, if the sum is finite
float two_sum(float a, float b, out float rest) {
    precise const float sum = a + b;
    precise const float part = sum - a;
    precise const float error = (a - (sum - part)) + (b - part);
    rest = abs(sum) < uintBitsToFloat(0x7F800000) ? error : 0.0;
    return sum;
}

// One token of mLSTM's gates: m' = max(log_f + m, log_i), f' = exp(log_f + m − m') and
// i' = exp(log_i − m'). The exponents are sums of two floats: f' makes up for the rounding of m',
// otherwise S·eᵐ would drift, and in F32 a difference of 30 would give i' a relative error of 1e-6.
void mlstm_gates(float log_f, float log_i, inout float m, out float f, out float in_) {
    float       rest, rest_f, rest_i;
    const float sum = two_sum(log_f, m, rest);
    m = max(sum, log_i);
    f = scan_exp(two_sum(sum, -m, rest_f));
    in_ = scan_exp(two_sum(log_i, -m, rest_i));
    f = fma(f, rest + rest_f, f); // e^rest = 1 + rest
    in_ = fma(in_, rest_i, in_);
}

void main() {
    const uint h = gl_WorkGroupID.x % N_HEAD;
    const uint j = column();
    if (j >= (NORMALIZER ? 1 : D_V)) {
        return;
    }
    sequence seq;
    if (!sequence_get(gl_WorkGroupID.x / N_HEAD, seq)) {
        const uvec2 tokens = sequence_tokens(seq);
        for (uint t = tokens.x; t < tokens.y; ++t) {
            put(h, t, j, nan());
        }
        return;
    }
    float A[ROWS]; // of this column; or the bonus
    FOR_ROWS {
        A[i] = KIND == KIND_ELEMENT && row_exists(i) ? aux[aux_row(h, row(i), j)] : 0.0;
    }
    if (BONUS) {
        LOAD(A, aux, aux_row(h, 0, 0))
    }
    float norm[ROWS];
    float m = 0.0;
    if (MLSTM) {
        const uint from = seq.slot_in < 0 ? 0 : head_at(seq.slot_in, h, HEAD_SIZE) + D_K * D_V;
        FOR_ROWS {
            norm[i] = seq.slot_in >= 0 && row_exists(i) ? state[from + row(i)] : 0.0;
        }
        m = seq.slot_in < 0 ? 0.0 : state[from + D_K];
    }
    if (!NORMALIZER) {
        state_load(seq, h, j, HEAD_SIZE);
    }

    for (int n = 0; n <= seq.count; ++n) {
        if (NORMALIZER) {
            const int slot = slot_after(seq, n);
            if (slot >= 0) {
                const uint to = head_at(slot, h, HEAD_SIZE) + D_K * D_V;
                FOR_ROWS {
                    if (row_exists(i)) {
                        state[to + row(i)] = norm[i];
                    }
                }
                if (lane() == 0) {
                    state[to + D_K] = m;
                }
            }
        } else {
            state_store(seq, h, j, HEAD_SIZE, n);
        }
        if (n == seq.count) {
            break;
        }
        const uint t = uint(seq.first + n);
        float      xj = NORMALIZER ? 0.0 : x[x_row(h, 0, t) + j];
        float      rows_b[ROWS], rows_c[ROWS];
        LOAD(rows_b, b, b_row(h, 0, t))
        LOAD(rows_c, c, c_row(h, 0, t))

        float y = 0.0, below = 1.0;
        if (BONUS) { // y = Σ_i (S + (bonus ∘ b) xᵀ) c
            FOR_ROWS {
                y = fma(fma(A[i] * rows_b[i], xj, S[i]), rows_c[i], y);
            }
        }
        if (KIND == KIND_ELEMENT) { // S ← A ∘ S
            const float dt = gate[gate_row(h, 0, t) + j];
            xj *= dt;
            FOR_ROWS {
                S[i] *= decay(dt, A[i]);
            }
        } else if (KIND == KIND_CHANNEL) {
            FOR_ROWS {
                S[i] *= row_exists(i) ? gate[gate_row(h, 0, t) + row(i)] : 0.0;
            }
        } else if (MLSTM) { // S ← f' S,  n ← f' n + i' b
            float f, in_;
            mlstm_gates(gate[gate_row(h, 0, t)], aux[aux_row(h, 0, t)], m, f, in_);
            float nc = 0.0;
            FOR_ROWS {
                norm[i] = fma(in_, rows_b[i], f * norm[i]);
                nc = fma(norm[i], rows_c[i], nc);
            }
            nc = sum_rows(nc);
            below = max(abs(p.scale * nc), scan_exp(-m)) + p.eps;
            xj *= in_;
            FOR_ROWS {
                S[i] *= f;
            }
        } else if (KIND != KIND_NONE) {
            float a = gate[gate_row(h, 0, t)];
            if (KIND == KIND_SCALAR) {
                xj *= a;
                a = decay(a, aux[aux_row(h, 0, 0)]);
            }
            FOR_ROWS {
                S[i] *= a;
            }
        }
        if (NORMALIZER) {
            continue;
        }
        FOR_ROWS { // S ← S + b xᵀ
            S[i] = fma(rows_b[i], xj, S[i]);
        }
        if (!BONUS) {
            FOR_ROWS {
                y = fma(S[i], rows_c[i], y);
            }
        }
        y = sum_rows(y);
        if (lane() == 0) {
            put(h, t, j, p.scale * y / below);
        }
    }
}
