// Shared by the shaders of the scans: sequences and slots as in lrnn-ops.h, rows of tokens, and the
// layout of a state across invocations.
//
// What a model fixes (sizes, strides, modes) is a specialization constant; push constants hold what
// changes from call to call. dispatch.cpp sets both; constants 0 to 5 are the same in all shaders.

#extension GL_EXT_control_flow_attributes : require
#ifdef SUBGROUPS
#extension GL_KHR_shader_subgroup_basic : require
#extension GL_KHR_shader_subgroup_shuffle : require
#endif

layout(local_size_x_id = 0) in;
layout(constant_id = 1) const uint ROW_LANES = 1; // invocations that share the rows of a column
layout(constant_id = 2) const uint COL_LANES = 1; // adjacent columns that they take together
layout(constant_id = 3) const uint D_K = 1;
layout(constant_id = 4) const uint D_V = 1;
layout(constant_id = 5) const uint N_HEAD = 1;

layout(push_constant) uniform push_constants {
    int   n_snap, n_slots, n_tokens;
    uint  slot_stride; // in floats
    float scale, eps;
    uint  offset[10]; // of the tensor at a binding, in elements
} p;

layout(binding = 0) buffer state_buffer { float state[]; }; // [slots], each [heads][HEAD_SIZE]
layout(binding = 1) readonly buffer ids_buffer { int ids[]; }; // [sequences][4 + n_snap]

// TENSOR(x, B): the floats x[] at binding B.
#define TENSOR(NAME, BINDING) \
    layout(binding = BINDING) readonly buffer NAME##_buffer { float NAME[]; };

// TOKENS(x, B, C): a tensor of tokens [width, heads, factors, tokens] at binding B. Its constants
// from C on: state heads that share a head of it, and strides in floats. x_row(h, f, t) is the
// index of a row.
#define TOKENS(NAME, BINDING, ID) \
    TENSOR(NAME, BINDING) \
    layout(constant_id = ID + 0) const uint NAME##_share = 1; \
    layout(constant_id = ID + 1) const uint NAME##_head = 0; \
    layout(constant_id = ID + 2) const uint NAME##_factor = 0; \
    layout(constant_id = ID + 3) const uint NAME##_token = 0; \
    uint NAME##_row(uint h, uint factor, uint t) { \
        return p.offset[BINDING] + h / NAME##_share * NAME##_head + factor * NAME##_factor + \
               t * NAME##_token; \
    }

// OUTPUT(B): [tokens][heads][D_V]
#define OUTPUT(BINDING) \
    layout(binding = BINDING) writeonly buffer out_buffer { float out_[]; }; \
    void put(uint h, uint t, uint j, float x) { \
        out_[p.offset[BINDING] + (t * N_HEAD + h) * D_V + j] = x; \
    }

// ---- Sequences ----------------------------------------------------------------------------------

struct sequence {
    int slot_in, slot_out, first, count;
    uint snaps; // index of the first
};

// Reads sequence s. Returns false if a slot or a token is out of range; such a sequence must not be
// computed.
bool sequence_get(uint s, out sequence seq) {
    const uint id = p.offset[1] + s * (4 + p.n_snap);
    seq = sequence(ids[id], ids[id + 1], ids[id + 2], ids[id + 3], id + 4);
    bool ok = seq.slot_in >= -1 && seq.slot_in < p.n_slots && seq.slot_out >= 0 &&
              seq.slot_out < p.n_slots && seq.first >= 0 && seq.count >= 0 &&
              seq.count <= p.n_tokens && seq.first <= p.n_tokens - seq.count;
    for (int i = 0; i < p.n_snap; ++i) {
        ok = ok && ids[seq.snaps + i] >= -1 && ids[seq.snaps + i] < p.n_slots;
    }
    return ok;
}

// The tokens [x, y) of a sequence that is out of range; those that exist. Their output is NaN.
uvec2 sequence_tokens(const sequence seq) {
    if (seq.count <= 0 || seq.first >= p.n_tokens) {
        return uvec2(0);
    }
    const int first = max(seq.first, 0);
    const int last = seq.first < 0                          ? min(seq.first + seq.count, p.n_tokens)
                     : seq.count > p.n_tokens - seq.first ? p.n_tokens
                                                            : seq.first + seq.count;
    return uvec2(first, max(last, first));
}

float nan() {
    return uintBitsToFloat(0x7FC00000);
}

// The slot for the state after `done` tokens of the sequence; -1: none.
int slot_after(const sequence seq, int done) {
    const int back = seq.count - done; // tokens before the end
    return back == 0 ? seq.slot_out : back <= p.n_snap ? ids[seq.snaps + back - 1] : -1;
}

// The index in `state` of head h in a slot, for heads of `size` floats.
uint head_at(int slot, uint h, uint size) {
    return p.offset[0] + uint(slot) * p.slot_stride + h * size;
}

// ---- The state in registers ---------------------------------------------------------------------
//
// Columns of S never mix. ROW_LANES invocations of a subgroup take one column through the whole
// sequence: each keeps every ROW_LANES-th row in registers. Rows from D_K on are zero. Without
// subgroup arithmetic, or with few rows, an invocation has a whole column.

const uint ROWS = (D_K + ROW_LANES - 1) / ROW_LANES;

#define FOR_ROWS [[unroll]] for (uint i = 0; i < ROWS; ++i)

uint lane() {
#ifdef SUBGROUPS
    return gl_SubgroupInvocationID / COL_LANES;
#else
    return 0;
#endif
}

uint row(uint i) {
    return i * ROW_LANES + lane();
}

// True if row i of this invocation exists. A constant where ROW_LANES divides D_K.
bool row_exists(uint i) {
    return (i + 1) * ROW_LANES <= D_K || row(i) < D_K;
}

uint column() {
#ifdef SUBGROUPS
    const uint group = gl_WorkGroupID.y * gl_NumSubgroups + gl_SubgroupID;
    return group * COL_LANES + gl_SubgroupInvocationID % COL_LANES;
#else
    return gl_WorkGroupID.y * COL_LANES + gl_LocalInvocationIndex;
#endif
}

// The sum over the invocations that share a column; each of them gets it.
float sum_rows(float x) {
#ifdef SUBGROUPS
    [[unroll]] for (uint n = COL_LANES; n < COL_LANES * ROW_LANES; n *= 2) {
        x += subgroupShuffleXor(x, n);
    }
#endif
    return x;
}

// Loads the rows of a vector [D_K] that begins at FROM in a tensor.
#define LOAD(TO, NAME, FROM) \
    FOR_ROWS { \
        TO[i] = row_exists(i) ? NAME[FROM + row(i)] : 0.0; \
    }

float S[ROWS]; // of this invocation

// Loads column j of head h as it is before the first token.
void state_load(const sequence seq, uint h, uint j, uint head_size) {
    const uint from = seq.slot_in < 0 ? 0 : head_at(seq.slot_in, h, head_size) + j;
    FOR_ROWS {
        S[i] = seq.slot_in >= 0 && row_exists(i) ? state[from + row(i) * D_V] : 0.0;
    }
}

// Stores it after `done` tokens if there is a slot for it.
void state_store(const sequence seq, uint h, uint j, uint head_size, int done) {
    const int slot = slot_after(seq, done);
    if (slot < 0) {
        return;
    }
    const uint to = head_at(slot, h, head_size) + j;
    FOR_ROWS {
        if (row_exists(i)) {
            state[to + row(i) * D_V] = S[i];
        }
    }
}

// Sᵀ x, the sum of all rows
#define DOT(TO, X) \
    TO = 0.0; \
    FOR_ROWS { \
        TO = fma(S[i], X[i], TO); \
    } \
    TO = sum_rows(TO);

// exp(x) to within two units in the last place. The built-in one may have an error that grows with
// |x|.
//     x = n ln 2 + r, |r| ≤ ln 2 / 2;   exp(x) = 2ⁿ (1 + r + r²/2! + … + r⁷/7!)
// precise: otherwise a compiler may add the two parts of ln 2 first. It does not protect an fma.
float scan_exp(float x) {
    if (!(x > -104.0)) {
        return x <= -104.0 ? 0.0 : x; // NaN stays NaN
    }
    if (x > 89.0) {
        return uintBitsToFloat(0x7F800000); // infinity
    }
    precise const float n = roundEven(x * 1.44269504);
    precise const float most = x - n * 0.693145752; // the product is exact
    precise const float r = most - n * 1.42860677e-6;
    float               y = 1.0 / 5040.0;
    y = fma(y, r, 1.0 / 720.0);
    y = fma(y, r, 1.0 / 120.0);
    y = fma(y, r, 1.0 / 24.0);
    y = fma(y, r, 1.0 / 6.0);
    y = fma(y, r, 0.5);
    y = fma(y, r, 1.0);
    y = fma(y, r, 1.0);
    const int e = int(n);
    const int f = e / 2; // 2ⁿ may be out of range where 2ⁿ y is not
    return y * intBitsToFloat((127 + f) * 0x800000) * intBitsToFloat((127 + e - f) * 0x800000);
}
