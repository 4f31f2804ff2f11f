#include "run/placement.h"

#include "file/loader.h"
#include "file/model-file.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { CANDIDATES_MAX = DEVICES_MAX - 1 };

struct candidate {
    ggml_backend_dev_t dev;
    double             share;  // of the layers, in any unit
    double             usable; // bytes of weights that it can take, 0: not known
    double             taken;  // by a placement that is tried
};

struct candidates {
    int32_t          n;
    struct candidate list[CANDIDATES_MAX];
};

//
// Which devices
//

// The next name of a list between commas; false behind the last.
static bool next_name(const char ** list, char * name, size_t size) {
    const size_t n = strcspn(*list, ",");
    snprintf(name, size, "%.*s", (int) n, *list);
    const bool found = **list != '\0';
    *list += n + ((*list)[n] == ',');
    return found;
}

#ifdef __GNUC__
__attribute__((format(printf, 3, 4)))
#endif
static bool
refuse(char * err, size_t err_size, const char * fmt, ...) {
    va_list args;
    va_start(args, fmt);
    vsnprintf(err, err_size, fmt, args);
    va_end(args);
    return false;
}

static bool add_candidate(
        struct candidates * d, ggml_backend_dev_t dev, char * err, size_t err_size) {
    for (int32_t i = 0; i < d->n; ++i) {
        if (d->list[i].dev == dev) {
            return refuse(err, err_size, "device %s is named twice", ggml_backend_dev_name(dev));
        }
    }
    if (d->n == CANDIDATES_MAX) {
        return refuse(err, err_size, "there are more than %d devices; expected a choice of them",
                CANDIDATES_MAX);
    }
    d->list[d->n++] = (struct candidate) { .dev = dev };
    return true;
}

static bool add_type(
        struct candidates * d, enum ggml_backend_dev_type type, char * err, size_t err_size) {
    for (size_t i = 0; i < ggml_backend_dev_count(); ++i) {
        ggml_backend_dev_t dev = ggml_backend_dev_get(i);
        if (ggml_backend_dev_type(dev) == type && !add_candidate(d, dev, err, err_size)) {
            return false;
        }
    }
    return true;
}

// The names of all devices, for whoever named one that is not there.
static void all_names(char * text, size_t size) {
    size_t n = 0;
    for (size_t i = 0; i < ggml_backend_dev_count() && n < size; ++i) {
        n += (size_t) snprintf(text + n, size - n, "%s%s", i > 0 ? ", " : "",
                ggml_backend_dev_name(ggml_backend_dev_get(i)));
    }
}

static bool add_named(struct candidates * d, const char * list, char * err, size_t err_size) {
    char name[128];
    bool cpu = false;
    for (const char * p = list; next_name(&p, name, sizeof(name));) {
        ggml_backend_dev_t dev = ggml_backend_dev_by_name(name);
        if (dev == NULL) {
            char there[512] = "none";
            all_names(there, sizeof(there));
            return refuse(err, err_size, "there is no device '%s'; there are: %s", name, there);
        }
        if (ggml_backend_dev_type(dev) == GGML_BACKEND_DEVICE_TYPE_CPU) {
            cpu = true;
        } else if (ggml_backend_dev_type(dev) == GGML_BACKEND_DEVICE_TYPE_ACCEL) {
            return refuse(err, err_size,
                    "device %s has no memory of its own; it cannot hold layers", name);
        } else if (!add_candidate(d, dev, err, err_size)) {
            return false;
        }
    }
    if (cpu && d->n > 0) {
        return refuse(err, err_size,
                "the CPU takes what no other device takes; expected it alone, or not at all, in '%s'",
                list);
    }
    return true;
}

// The share of each device: as the user wants it, or in proportion to its free memory.
static bool set_shares(struct candidates * d, const char * split, char * err, size_t err_size) {
    double sum = 0.0;
    for (int32_t i = 0; i < d->n; ++i) {
        struct candidate * v          = &d->list[i];
        size_t             free_bytes = 0, total_bytes = 0;
        ggml_backend_dev_memory(v->dev, &free_bytes, &total_bytes);
        v->usable =
                (double) free_bytes * 0.875; // the rest for states and what a call computes with
        v->share = v->usable > 0.0 ? v->usable : 1.0;
        if (split != NULL) {
            char * end;
            v->share = strtod(split, &end);
            if (end == split || !(v->share >= 0.0 && v->share <= 1e9) ||
                    *end != (i < d->n - 1 ? ',' : '\0')) {
                return refuse(err, err_size,
                        "the split of the layers does not fit; expected a number for each of %d devices, as in 3,1",
                        d->n);
            }
            split = end + 1;
        }
        sum += v->share;
    }
    return sum > 0.0 || d->n == 0 ||
           refuse(err, err_size, "the split of the layers gives every device nothing");
}

static bool find_candidates(struct candidates * d, const struct lrnn_model_params * params,
        char * err, size_t err_size) {
    *d = (struct candidates) { 0 };
    if (params->devices != NULL) {
        if (!add_named(d, params->devices, err, err_size)) {
            return false;
        }
    } else if (params->n_gpu_layers != 0) {
        if (!add_type(d, GGML_BACKEND_DEVICE_TYPE_GPU, err, err_size) ||
                (d->n == 0 && !add_type(d, GGML_BACKEND_DEVICE_TYPE_IGPU, err, err_size))) {
            return false;
        }
    }
    return set_shares(d, params->tensor_split, err, err_size);
}

bool lrnn_model_params_check(const struct lrnn_model_params * params, char * err, size_t err_size) {
    struct candidates d;
    return find_candidates(&d, params, err, err_size);
}

//
// Which layers
//

static bool is_output(const struct model_file * file, const char * name) {
    const bool tied = model_file_find_tensor(file, "output.weight") == NULL;
    return strncmp(name, "output", 6) == 0 || (tied && strcmp(name, "token_embd.weight") == 0);
}

// Bytes of the weights of each layer, and behind them of the output.
static void count_bytes(const struct lrnn_model * model, double * bytes) {
    for (size_t i = 0; i < model_file_n_tensors(model->file); ++i) {
        const struct model_tensor * t = model_file_tensor(model->file, i);
        int                         il;
        if (sscanf(t->name, "blk.%d.", &il) == 1 && il >= 0 && il < model->n_layer) {
            bytes[il] += (double) t->size;
        } else if (is_output(model->file, t->name)) {
            bytes[model->n_layer] += (double) t->size;
        }
    }
}

// Gives the last n of n_all to the devices; place[i] is 1 + the number of the device, or 0. True if
// there is memory for them.
static bool try_placement(
        struct candidates * d, const double * bytes, int32_t n_all, int32_t n, int32_t * place) {
    double all = 0.0, shares = 0.0;
    for (int32_t i = n_all - n; i < n_all; ++i) {
        all += bytes[i];
    }
    for (int32_t i = 0; i < d->n; ++i) {
        d->list[i].taken = 0.0;
        shares += d->list[i].share;
    }
    memset(place, 0, (size_t) n_all * sizeof(*place));

    int32_t at    = 0;
    double  below = 0.0;                       // bytes of the layers before this one
    double  limit = d->list[0].share / shares; // of the bytes, up to and with device `at`
    bool    fits  = true;
    for (int32_t i = n_all - n; i < n_all; ++i) {
        while (at < d->n - 1 &&
                (below + bytes[i] / 2.0 > limit * all ||
                        d->list[at].share == 0.0)) { // a layer is where its middle is
            limit += d->list[++at].share / shares;
        }
        struct candidate * v = &d->list[at];
        place[i]             = 1 + at;
        below += bytes[i];
        v->taken += bytes[i];
        fits = fits && (v->usable == 0.0 || v->taken <= v->usable);
    }
    return fits;
}

// Keeps the devices that are used, and numbers the places anew.
static void keep_used(
        struct lrnn_model * model, const struct candidates * d, const int32_t * place) {
    int32_t of_device[CANDIDATES_MAX] = { 0 };
    for (int32_t i = 0; i <= model->n_layer; ++i) {
        int32_t at = 0;
        if (place[i] > 0) {
            int32_t * of = &of_device[place[i] - 1];
            if (*of == 0) {
                *of                     = model->n_devices++;
                model->devices[*of].dev = d->list[place[i] - 1].dev;
            }
            at = *of;
        }
        if (i < model->n_layer) {
            model->layers[i].device = at;
        } else {
            model->output_device = at;
        }
    }
}

bool placement_choose(struct loader * l, const struct lrnn_model_params * params) {
    struct lrnn_model * model = l->model;
    struct candidates   d;

    model->devices[0].dev = ggml_backend_dev_by_type(GGML_BACKEND_DEVICE_TYPE_CPU);
    model->n_devices      = 1;
    if (model->devices[0].dev == NULL) {
        return loader_fail(l, "ggml has no CPU device");
    }
    if (params == NULL) {
        return true;
    }
    if (!find_candidates(&d, params, l->err, l->err_size)) {
        l->failed = true;
        return false;
    }
    const int32_t n_all = model->n_layer + 1;
    const bool    fit   = params->n_gpu_layers < 0;
    int32_t       n     = fit || params->n_gpu_layers > n_all ? n_all : params->n_gpu_layers;
    if (d.n == 0 || n == 0) {
        return true;
    }
    double *  bytes = loader_alloc(l, (size_t) n_all * sizeof(*bytes));
    int32_t * place = loader_alloc(l, (size_t) n_all * sizeof(*place));
    if (bytes == NULL || place == NULL) {
        return false;
    }
    count_bytes(model, bytes);
    while (!try_placement(&d, bytes, n_all, n, place) && fit && n > 0) {
        n--;
    }
    keep_used(model, &d, place);
    return true;
}

void placement_log(const struct lrnn_model * model) {
    for (int32_t first = 0, end; first <= model->n_layer && model->log != NULL;
            first      = end) { // a line for each run of layers
        const int32_t place =
                first < model->n_layer ? model->layers[first].device : model->output_device;
        for (end = first; end < model->n_layer && model->layers[end].device == place; ++end) {
        }
        const bool output     = end == model->n_layer && model->output_device == place;
        char       layers[64] = "", text[256];
        if (end > first) {
            snprintf(layers, sizeof(layers), "layers %d to %d", first, end - 1);
        }
        snprintf(text, sizeof(text), "%s%s%s on %s", layers, end > first && output ? " and " : "",
                output ? "the output" : "", ggml_backend_dev_name(model->devices[place].dev));
        model->log(LRNN_LOG_INFO, text, model->log_user);
        end += output;
    }
}
