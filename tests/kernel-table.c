// What the compiler made of the CUDA kernels, and what a card could make of them at best, as tables
// for src/ops/README.md.
//
//     kernel-table LOG...        LOG: what nvcc --version and then nvcc --resource-usage said, for one architecture or several
//
// Returns 1, and names the kernel on stderr, if one that serves d ≤ 128 has anything in local
// memory: spilled registers, or an array with an index.

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

//
// Architectures. Limits of a multiprocessor: CUDA C++ Programming Guide, "Compute Capabilities",
// table of technical specifications.
//

enum { N_ARCH = 3 };

struct arch {
    int name;        // sm_<name>
    int shared;      // bytes
    int max_threads; // that are resident
    int max_blocks;
};

static const struct arch archs[N_ARCH] = {
    { 80, 164 * 1024, 2048, 32 },
    { 90, 228 * 1024, 2048, 32 },
    { 120, 100 * 1024, 1536, 24 },
};

enum {
    REGISTERS       = 65536, // of a multiprocessor, a quarter of them for each of its schedulers
    REGISTER_UNIT   = 256,   // a warp gets a multiple of this
    SHARED_UNIT     = 128,   // a block gets a multiple of this,
    SHARED_RESERVED = 1024,  // and this much of it belongs to the system
};

static int round_up(int x, int unit) {
    return (x + unit - 1) / unit * unit;
}
static int min_int(int a, int b) {
    return a < b ? a : b;
}

// Blocks that can be on a multiprocessor at a time
static int blocks_bound(const struct arch * arch, int threads, int registers, int shared) {
    const int warps        = round_up(threads, 32) / 32;
    const int by_registers = REGISTERS / 4 / round_up(32 * registers, REGISTER_UNIT) * 4 / warps;
    const int by_shared    = arch->shared / round_up(shared + SHARED_RESERVED, SHARED_UNIT);
    return min_int(min_int(by_registers, by_shared),
            min_int(arch->max_threads / threads, arch->max_blocks));
}

// The card that rooflines are for: A100 80 GB SXM (NVIDIA's data sheet)
static const double card_bytes  = 2.039e12; // a second
static const double card_f32    = 19.5e12;  // flops a second
static const double card_tensor = 156e12;   // TF32, dense

//
// Kernels: how they are launched, what they read, write and compute for one token of one head, with
// d = d_k = d_v and n_h = 1
//

enum {
    MAX_ARGS     = 3,
    GATE_HEAD    = 1,
    GATE_CHANNEL = 2,
    MODE_CHANNEL = 1,
    MODE_ELEMENT = 2
}; // as in src/ops/cuda

struct cost {
    double flops;   // F32; terms of only one dimension are left out
    double tensor;  // flops of tensor cores, as many as are performed
    double prefill; // bytes of a token among many
    double decode; // bytes of a lone token: the state too is read and written; 0: not used for that
};

struct family {
    const char * name;
    int          threads; // of a block
    bool         sized;   // the first template argument is the size
    int          d;       // if not sized: the size that costs are computed for
    struct cost (*cost)(double d, const int * arg);
};

// arg: size, gate, whether r and w
static struct cost householder_step_cost(double d, const int * arg) {
    const double gate = arg[1] == GATE_CHANNEL ? d : arg[1];
    struct cost  c    = { 0 };
    c.flops           = ((arg[2] ? 8 : 6) + (arg[1] != 0)) * d * d;
    c.prefill         = 4 * (arg[2] ? 6 * d + gate : 4 * d + 1 + gate);
    c.decode          = c.prefill + 8 * d * d;
    return c;
}

// arg: size, mode, whether a bonus
static struct cost signed_step_cost(double d, const int * arg) {
    const bool  element = arg[1] == MODE_ELEMENT;
    struct cost c       = { 0 };
    c.flops             = (5 + (arg[2] ? 2 : 0) + (element ? 25 : 0)) * d * d; // 25: what exp takes
    c.prefill           = 4 * (4 * d + (arg[1] == 0 ? 1 : d));
    c.decode            = c.prefill + (element ? 12 : 8) * d * d;
    return c;
}

// arg: gate. 20 (12 with channels) of 32 tiles of 16 × 8 lie below the diagonal, in each of two
// products; a tile takes 3 multiplications of 2048 flops for 8 channels. Then 64 columns of an
// inverse; with channels, tiles on the diagonal too are no matrix products.
static struct cost chunk_prepare_cost(double d, const int * arg) {
    const bool  channel = arg[0] == GATE_CHANNEL;
    struct cost c       = { 0 };
    c.flops             = 64 * 63 + (channel ? 96 * d : 0);
    c.tensor            = (channel ? 12 : 20) * 2 * (d / 8) * 3 * 2048 / 64;
    c.prefill           = 4 * (2 * d + 1 + 2 * 64 + (channel ? 4 * d + d / 64 : arg[0]));
    return c;
}

// arg: size. For 16 columns, in multiplications of a warp's 16 rows by 8 of the right factor: K S
// and Q S 4 (d / 8) each, T R 20, A U 32, Kᵀ U 8 (d / 16).
static struct cost chunk_cost(double d, const int * arg) {
    (void) arg;
    struct cost c = { 0 };
    c.tensor      = (d / 16) * (2 * 4 * (d / 8) + 20 + 32 + 8 * (d / 16)) * 2 * 3 * 2048 / 64;
    c.prefill     = 4 * (4 * d + 2 * 64);
    return c;
}

static struct cost householder_plain_cost(double d, const int * arg) {
    struct cost c = householder_step_cost(d, (const int[]) { 0, 0, 0 });
    (void) arg;
    c.prefill = c.decode; // the state is in memory
    return c;
}

static struct cost signed_plain_cost(double d, const int * arg) {
    struct cost c = signed_step_cost(d, (const int[]) { 0, 0, 0 });
    (void) arg;
    c.prefill = c.decode;
    return c;
}

static struct cost mlstm_normalise_cost(double d, const int * arg) {
    (void) arg;
    return (struct cost) { .flops = 6 * d, .prefill = 4 * (4 * d + 2), .decode = 4 * (6 * d + 4) };
}

// width 4
static struct cost short_conv_cost(double d, const int * arg) {
    (void) arg;
    return (struct cost) {
        .flops = 8 * d, .prefill = 8 * d, .decode = (8 + 2 * 3 * 4 + 4 * 4) * d
    };
}

enum family_id {
    HOUSEHOLDER_STEP,
    SIGNED_STEP,
    CHUNK_PREPARE,
    CHUNK,
    HOUSEHOLDER_PLAIN,
    SIGNED_PLAIN,
    MLSTM_NORMALISE,
    SHORT_CONV,
    N_FAMILY
};

static const struct family families[N_FAMILY] = {
    [HOUSEHOLDER_STEP]  = { "householder_step", 128, true, 0, householder_step_cost },
    [SIGNED_STEP]       = { "signed_step", 128, true, 0, signed_step_cost },
    [CHUNK_PREPARE]     = { "householder_chunk_prepare", 128, false, 128, chunk_prepare_cost },
    [CHUNK]             = { "householder_chunk", 128, true, 0, chunk_cost },
    [HOUSEHOLDER_PLAIN] = { "householder_plain", 128, false, 512, householder_plain_cost },
    [SIGNED_PLAIN]      = { "signed_plain", 128, false, 512, signed_plain_cost },
    [MLSTM_NORMALISE]   = { "mlstm_normalise", 128, false, 128, mlstm_normalise_cost },
    [SHORT_CONV]        = { "short_conv", 256, false, 128, short_conv_cost },
};

static const char * form_of(enum family_id family, const int * arg) {
    static const char * gates[][3] = { { "no gate", "gate a head", "gate a channel" },
        { "r, w, no gate", "r, w, gate a head", "r, w, gate a channel" } };
    static const char * modes[][3] = { { "a head", "a channel", "an element" },
        { "a head, bonus", "a channel, bonus", "an element, bonus" } };
    switch (family) {
        case HOUSEHOLDER_STEP: return gates[arg[2] != 0][arg[1]];
        case SIGNED_STEP: return modes[arg[2] != 0][arg[1]];
        case CHUNK_PREPARE: return gates[0][arg[0]];
        case CHUNK: return "any gate";
        default: return families[family].name;
    }
}

//
// What ptxas said
//

struct figures {
    bool there;
    int  registers, shared;
    int  local;          // bytes of local memory,
    int  stored, loaded; // and spills to and from it
};

struct kernel {
    enum family_id family;
    int            arg[MAX_ARGS];
    struct figures on[N_ARCH];
};

enum { MAX_KERNELS = 512 };

struct kernel_list {
    struct kernel item[MAX_KERNELS];
    int           n;
    char          toolkit[64]; // "13.0, V13.0.88"
};

// A kernel by its linker name: _Z, L if it is static and no template, length and name, template
// arguments (all of them integers and truth values).
static bool kernel_parse(const char * text, struct kernel * k) {
    memset(k, 0, sizeof(*k));
    const char * at = text + (strncmp(text, "_ZL", 3) == 0 ? 3 : 2);
    char *       end;
    const long   length = strncmp(text, "_Z", 2) == 0 ? strtol(at, &end, 10) : 0;
    if (length <= 0 || (size_t) length > strlen(end)) {
        return false;
    }
    const char * name = end;
    for (k->family = 0; k->family < N_FAMILY; ++k->family) {
        const char * known = families[k->family].name;
        if (strlen(known) == (size_t) length && strncmp(known, name, (size_t) length) == 0) {
            break;
        }
    }
    if (k->family == N_FAMILY) {
        return false;
    }
    at = name + length;
    if (*at == 'I') {
        at++;
        for (int i = 0; *at == 'L'; ++i) {
            if (i == MAX_ARGS || (at[1] != 'i' && at[1] != 'b')) {
                return false;
            }
            k->arg[i] = (int) strtol(at + 2, &end, 10);
            if (*end != 'E' || end == at + 2) {
                return false;
            }
            at = end + 1;
        }
    }
    // what is not the size is a gate, a mode or a truth value
    for (int i = families[k->family].sized; i < MAX_ARGS; ++i) {
        if (k->arg[i] < 0 || k->arg[i] > 2) {
            return false;
        }
    }
    return true;
}

static int kernel_size(const struct kernel * k) {
    return families[k->family].sized ? k->arg[0] : families[k->family].d;
}

// By family, then form, then size
static int kernel_compare(const void * va, const void * vb) {
    const struct kernel * a         = va;
    const struct kernel * b         = vb;
    const int             keys[][2] = {
        { (int) a->family, (int) b->family },
        { a->arg[2], b->arg[2] },
        { a->arg[1], b->arg[1] },
        { a->arg[0], b->arg[0] },
    };
    for (size_t i = 0; i < sizeof(keys) / sizeof(keys[0]); ++i) {
        if (keys[i][0] != keys[i][1]) {
            return keys[i][0] < keys[i][1] ? -1 : 1;
        }
    }
    return 0;
}

// The figures of a kernel on an architecture, a new entry if there is none yet. NULL: no room.
static struct figures * list_figures(struct kernel_list * list, const struct kernel * k, int arch) {
    int i = 0;
    while (i < list->n && kernel_compare(&list->item[i], k) != 0) {
        i++;
    }
    if (i == MAX_KERNELS) {
        return NULL;
    }
    if (i == list->n) {
        list->item[list->n++] = *k;
    }
    return &list->item[i].on[arch];
}

// The number before `unit` in a line, 0 if there is none
static int number_before(const char * line, const char * unit) {
    const char * at = strstr(line, unit);
    if (at == NULL) {
        return 0;
    }
    while (at > line && at[-1] >= '0' && at[-1] <= '9') {
        at--;
    }
    return atoi(at);
}

static bool log_read(const char * path, struct kernel_list * list, char * err, size_t err_size) {
    FILE * file = fopen(path, "r");
    if (file == NULL) {
        snprintf(err, err_size, "%s: cannot be read", path);
        return false;
    }
    char             line[4096], name[2048], toolkit[64];
    int              sm;
    struct figures * now = NULL;
    bool             ok  = true;
    while (ok && fgets(line, sizeof(line), file) != NULL) {
        const char * release = strstr(line, "release ");
        if (release != NULL && sscanf(release, "release %63[^\n]", toolkit) == 1) {
            ok = list->toolkit[0] == '\0' || strcmp(list->toolkit, toolkit) == 0;
            snprintf(list->toolkit, sizeof(list->toolkit), "%s", toolkit);
            snprintf(err, err_size, "%s: comes from another toolkit than the one before it", path);
        } else if (sscanf(line, "ptxas info : Compiling entry function '%2047[^']' for 'sm_%d'",
                           name, &sm) == 2) {
            struct kernel k;
            int           arch = 0;
            while (arch < N_ARCH && archs[arch].name != sm) {
                arch++;
            }
            if (arch == N_ARCH) {
                snprintf(err, err_size, "%s: sm_%d is not among the architectures of kernel-table",
                        path, sm);
                ok = false;
            } else if (!kernel_parse(name, &k)) {
                snprintf(err, err_size, "%s: '%s' is not among the kernels of kernel-table", path,
                        name);
                ok = false;
            } else {
                now = list_figures(list, &k, arch);
                snprintf(err, err_size, "%s: more than %d kernels", path, MAX_KERNELS);
                ok = now != NULL;
            }
        } else if (now != NULL && strstr(line, " bytes spill stores") !=
                                          NULL) { // the kernel's, and those of functions it calls
            now->local += number_before(line, " bytes stack frame");
            now->stored += number_before(line, " bytes spill stores");
            now->loaded += number_before(line, " bytes spill loads");
        } else if (now != NULL && strstr(line, " registers") != NULL) {
            now->registers = number_before(line, " registers");
            now->shared    = number_before(line, " bytes smem");
            now->there     = now->registers > 0;
        }
    }
    fclose(file);
    return ok;
}

//
// The tables
//

// 1234567 as 1,234,567
static const char * with_commas(double x, char text[32]) {
    char digits[32];
    snprintf(digits, sizeof(digits), "%.0f", x);
    const int n   = (int) strlen(digits);
    int       out = 0;
    for (int i = 0; i < n; ++i) {
        if (i > 0 && (n - i) % 3 == 0) {
            text[out++] = ',';
        }
        text[out++] = digits[i];
    }
    text[out] = '\0';
    return text;
}

static double larger(double a, double b) {
    return a > b ? a : b;
}

// | bytes | ns |
static void print_roofline(const struct cost * c, double bytes) {
    char text[32];
    if (bytes == 0) {
        printf(" – | – |");
        return;
    }
    const double ns =
            1e9 * larger(bytes / card_bytes, larger(c->flops / card_f32, c->tensor / card_tensor));
    printf(" %s |", with_commas(bytes, text));
    if (ns < 999.5) {
        printf(" %.3g |", ns);
    } else {
        printf(" %s |", with_commas(ns, text));
    }
}

static void print_row(const struct kernel * k) {
    const struct family * family = &families[k->family];

    printf("| %s | %d |", form_of(k->family, k->arg), kernel_size(k));
    bool one_size = true;
    for (int a = 1; a < N_ARCH; ++a) {
        one_size = one_size && k->on[a].shared == k->on[0].shared;
    }
    char text[32];
    for (int a = 0; a < (one_size ? 1 : N_ARCH); ++a) {
        printf("%s %s", a > 0 ? " ·" : "", with_commas(k->on[a].shared, text));
    }
    printf(" |");
    for (int a = 0; a < N_ARCH; ++a) {
        printf("%s %d", a > 0 ? " ·" : "", k->on[a].registers);
    }
    printf(" |");
    for (int a = 0; a < N_ARCH; ++a) {
        if (k->on[a].stored + k->on[a].loaded == 0) {
            printf("%s 0", a > 0 ? " ·" : "");
        } else {
            printf("%s %d/%d", a > 0 ? " ·" : "", k->on[a].stored, k->on[a].loaded);
        }
    }
    printf(" |");
    for (int a = 0; a < N_ARCH; ++a) {
        printf("%s %d", a > 0 ? " ·" : "",
                blocks_bound(&archs[a], family->threads, k->on[a].registers, k->on[a].shared));
    }
    printf(" |");
    for (int a = 0; a < N_ARCH; ++a) {
        const int blocks =
                blocks_bound(&archs[a], family->threads, k->on[a].registers, k->on[a].shared);
        printf("%s %.0f", a > 0 ? " ·" : "",
                100.0 * blocks * family->threads / archs[a].max_threads);
    }
    const struct cost c = family->cost(kernel_size(k), k->arg);
    printf(" |");
    if (c.flops > 0) {
        printf(" %s%s", with_commas(c.flops, text), c.tensor > 0 ? " + " : "");
    }
    if (c.tensor > 0) {
        printf("%s%s TF32", c.flops > 0 ? "" : " ", with_commas(c.tensor, text));
    }
    printf(" |");
    print_roofline(&c, c.decode);
    print_roofline(&c, c.prefill);
    printf("\n");
}

struct section {
    const char *   title;
    const char *   text;
    enum family_id first, last;
};

static const struct section sections[] = {
    { "`householder_step<d, gate, r and w>`",
            "Flops: 4 n_h d_k d_v + 2 d_k d_v, or 8 d_k d_v with r and w; a gate adds d_k d_v. Floats in and out: n_h (d_k + d_v + 1) + d_k + d_v + gate,\n"
            "or 4 d_k + 2 d_v + gate with r and w; a lone token adds 2 d_k d_v for the state.",
            HOUSEHOLDER_STEP, HOUSEHOLDER_STEP },
    { "`signed_step<d, A, bonus>`",
            "A is a number a head, a channel or an element. Flops: 5 d_k d_v; a bonus adds 2 d_k d_v, the exponential of an element 25 d_k d_v.\n"
            "Floats in and out: 2 d_k + 2 d_v + gate; a lone token adds 2 d_k d_v for the state, and d_k d_v for A where it has elements.",
            SIGNED_STEP, SIGNED_STEP },
    { "`householder_chunk_prepare<gate>`, then `householder_chunk<d>`",
            "TF32: flops of tensor cores, three multiplications for each of F32. A token of a full chunk takes 4,032 flops and 480 d_k TF32 to prepare (with\n"
            "channels 4,032 + 96 d_k and 288 d_k TF32), then 18 d_k d_v + 624 d_v TF32. Floats in and out: those of the step kernel, keys and queries twice;\n"
            "64 of T and 64 of A, written and read; with channels also P ∘ K, D ∘ K and P ∘ Q. The two rows of a call add up.",
            CHUNK_PREPARE, CHUNK },
    { "The others",
            "`*_plain` serves d_k > 256 and has the state in memory; `mlstm_normalise` comes after `signed_step`; `short_conv` is given for 128 channels and\n"
            "width 4.",
            HOUSEHOLDER_PLAIN, SHORT_CONV },
};

static void print_tables(const struct kernel_list * list) {
    printf("Compiled by CUDA %s. Registers, spills (bytes stored/loaded), blocks and occupancy are for sm_80 · sm_90 · sm_120; shared memory is\n"
           "in bytes, all of it static. Blocks are what a multiprocessor can hold of the kernel's largest block (limits after NVIDIA's CUDA C++\n"
           "Programming Guide, \"Compute Capabilities\"), occupancy is their share of the threads it can hold, in percent.\n"
           "Flops and bytes of memory are those of one token of one head with d_k = d_v = d, n_h = 1 and no head shared. ns is the larger of bytes and\n"
           "flops over what an A100 80 GB SXM does at best (%.2f TB/s, %.1f TFLOP/s F32, %.0f TFLOP/s TF32), when there are heads enough to fill it. A\n"
           "lone token (decode) has its state read and written; one among many (prefill) finds it in registers. All of it is computed, nothing measured.\n",
            list->toolkit, card_bytes / 1e12, card_f32 / 1e12, card_tensor / 1e12);
    for (size_t s = 0; s < sizeof(sections) / sizeof(sections[0]); ++s) {
        printf("\n#### %s\n\n%s\n\n", sections[s].title, sections[s].text);
        printf("| | d | shared | registers | spilled | blocks | occupancy | flops | decode: bytes | ns | prefill: bytes | ns |\n");
        printf("|---|--:|--:|--:|--:|--:|--:|--:|--:|--:|--:|--:|\n");
        for (int i = 0; i < list->n; ++i) {
            if (list->item[i].family >= sections[s].first &&
                    list->item[i].family <= sections[s].last) {
                print_row(&list->item[i]);
            }
        }
    }
    printf("\n");
}

int main(int argc, char ** argv) {
    static struct kernel_list list;

    char err[4096];
    for (int i = 1; i < argc; ++i) {
        if (!log_read(argv[i], &list, err, sizeof(err))) {
            fprintf(stderr, "kernel-table: %s\n", err);
            return 2;
        }
    }
    if (list.n == 0 || list.toolkit[0] == '\0') {
        fprintf(stderr,
                "kernel-table: no kernel and no version of nvcc in the logs; kernel-table LOG...\n");
        return 2;
    }
    qsort(list.item, (size_t) list.n, sizeof(list.item[0]), kernel_compare);

    bool spilled = false;
    for (int i = 0; i < list.n; ++i) {
        const struct kernel * k = &list.item[i];
        for (int a = 0; a < N_ARCH; ++a) {
            const struct figures * f = &k->on[a];
            if (!f->there) {
                fprintf(stderr, "kernel-table: %s, %s, d = %d: there are no figures for sm_%d\n",
                        families[k->family].name, form_of(k->family, k->arg), kernel_size(k),
                        archs[a].name);
                return 2;
            }
            if (f->local + f->stored + f->loaded > 0 &&
                    (!families[k->family].sized || k->arg[0] <= 128)) {
                fprintf(stderr,
                        "kernel-table: %s, %s, d = %d uses local memory on sm_%d: %d bytes, %d stored and %d loaded by spills\n",
                        families[k->family].name, form_of(k->family, k->arg), kernel_size(k),
                        archs[a].name, f->local, f->stored, f->loaded);
                spilled = true;
            }
        }
    }
    print_tables(&list);
    return spilled;
}
