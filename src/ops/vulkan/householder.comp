#version 450
#extension GL_GOOGLE_include_directive : require

// Householder scan, factor by factor, with the state in registers.
//
//     S ← g_t ∘ S                                           once per token, before the first factor
//     for j = 1 .. n_h:   S ← S + β_j k_j (v_j − Sᵀ k_j)ᵀ
//     o_t = scale · Sᵀ q_t
//
// or, with r and w: u = Sᵀ r before the gate, then S ← g_t ∘ S − w uᵀ + k vᵀ.
//
// Work groups: sequences · heads, groups of columns.

#include "scan.glsl"

const uint GATE_NONE = 0, GATE_HEAD = 1, GATE_CHANNEL = 2;

layout(constant_id = 6) const uint N_H = 1;
layout(constant_id = 7) const uint GATE = 0;
layout(constant_id = 8) const bool RANK_ONE = false; // r and w

TOKENS(q, 2, 9)
TOKENS(k, 3, 13)
TOKENS(v, 4, 17)
TOKENS(beta, 5, 21)
TOKENS(gate, 6, 25)
TOKENS(r, 7, 29)
TOKENS(w, 8, 33)
OUTPUT(9)

const uint HEAD_SIZE = D_K * D_V;

void main() {
    const uint h = gl_WorkGroupID.x % N_HEAD;
    const uint j = column();
    if (j >= D_V) {
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
    state_load(seq, h, j, HEAD_SIZE);
    state_store(seq, h, j, HEAD_SIZE, 0);

    for (int n = 0; n < seq.count; ++n) {
        const uint t = uint(seq.first + n);
        float      x[ROWS]; // rows of a key or another vector
        float      u;
        if (RANK_ONE) { // before the gate: u = Sᵀ r
            LOAD(x, r, r_row(h, 0, t))
            DOT(u, x)
        }
        if (GATE == GATE_HEAD) { // S ← g ∘ S
            const float g = gate[gate_row(h, 0, t)];
            FOR_ROWS {
                S[i] *= g;
            }
        } else if (GATE == GATE_CHANNEL) {
            LOAD(x, gate, gate_row(h, 0, t))
            FOR_ROWS {
                S[i] *= x[i];
            }
        }
        if (RANK_ONE) { // S ← S − w uᵀ
            LOAD(x, w, w_row(h, 0, t))
            FOR_ROWS {
                S[i] = fma(x[i], -u, S[i]);
            }
        }
        for (uint f = 0; f < N_H; ++f) { // S ← S + k δᵀ,  δ = β (v − Sᵀ k), or v with r and w
            LOAD(x, k, k_row(h, f, t))
            float delta = v[v_row(h, f, t) + j];
            if (!RANK_ONE) {
                DOT(u, x)
                delta = beta[beta_row(h, f, t)] * (delta - u);
            }
            FOR_ROWS {
                S[i] = fma(x[i], delta, S[i]);
            }
        }
        LOAD(x, q, q_row(h, 0, t)) // o = scale · Sᵀ q
        DOT(u, x)
        if (lane() == 0) {
            put(h, t, j, p.scale * u);
        }
        state_store(seq, h, j, HEAD_SIZE, n + 1);
    }
}
