#include "model/placement.h"

#include "base/error.h"
#include "ops/glue.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

// With GGML_CUDA_GRAPH_OPT=1, ggml-cuda runs branches of a graph side by side. It does not see that
// a scan updates its state in place.
static bool is_reordered(ggml_backend_dev_t dev) {
    const char * set = getenv("GGML_CUDA_GRAPH_OPT");
    return set != NULL && atoi(set) == 1 &&
           strcmp(ggml_backend_reg_name(ggml_backend_dev_backend_reg(dev)), "CUDA") == 0;
}

// A GPU that is older than all code of this build would end the process at the first kernel.
static bool is_new_enough(ggml_backend_dev_t dev, struct lrnn_error * err) {
    ggml_lrnn_cuda_is_too_old_t is_too_old = NULL;
    void * const                address = ggml_backend_reg_get_proc_address(
            ggml_backend_dev_backend_reg(dev), "ggml_lrnn_cuda_is_too_old");
    memcpy(&is_too_old, &address, sizeof(is_too_old)); // C11 has no such conversion
    int found = 0, oldest = 0;
    if (is_too_old == NULL || !is_too_old(dev, &found, &oldest)) {
        return true;
    }
    return error_bad_input(err,
            "device %s (%s) has compute capability %d.%d; this build is for %d.%d and later; build "
            "it with CUDAARCHS=%d, or use other devices",
            ggml_backend_dev_name(dev), ggml_backend_dev_description(dev), found / 10, found % 10,
            oldest / 10, oldest % 10, found);
}

static bool add(struct device_list * list, ggml_backend_dev_t dev, struct lrnn_error * err) {
    if (is_reordered(dev)) {
        return error_bad_input(err,
                "the environment variable GGML_CUDA_GRAPH_OPT is 1; unset it to use device %s",
                ggml_backend_dev_name(dev));
    }
    if (!is_new_enough(dev, err)) {
        return false;
    }
    for (int32_t i = 0; i < list->n; ++i) {
        if (list->at[i].dev == dev) {
            return error_bad_input(err, "device %s is listed twice", ggml_backend_dev_name(dev));
        }
    }
    if (list->n == DEVICE_LIST_MAX) {
        return error_bad_input(err, "more than %d devices; list the ones to use", DEVICE_LIST_MAX);
    }
    list->at[list->n++] = (struct device_choice) { .dev = dev };
    return true;
}

static bool add_type(
        struct device_list * list, enum ggml_backend_dev_type type, struct lrnn_error * err) {
    for (size_t i = 0; i < ggml_backend_dev_count(); ++i) {
        ggml_backend_dev_t dev = ggml_backend_dev_get(i);
        if (ggml_backend_dev_type(dev) == type && !add(list, dev, err)) {
            return false;
        }
    }
    return true;
}

// The names of all devices, for an error message.
static void all_names(char * text, size_t size) {
    size_t n = 0;
    for (size_t i = 0; i < ggml_backend_dev_count() && n < size; ++i) {
        n += (size_t) snprintf(text + n, size - n, "%s%s", i > 0 ? ", " : "",
                ggml_backend_dev_name(ggml_backend_dev_get(i)));
    }
}

static bool add_name(
        struct device_list * list, const char * name, bool * has_cpu, struct lrnn_error * err) {
    ggml_backend_dev_t dev = ggml_backend_dev_by_name(name);
    if (dev == NULL) {
        char names[512] = "none";
        all_names(names, sizeof(names));
        return error_bad_input(err, "there is no device '%s'; there are: %s", name, names);
    }
    switch (ggml_backend_dev_type(dev)) {
        case GGML_BACKEND_DEVICE_TYPE_CPU: *has_cpu = true; return true;
        case GGML_BACKEND_DEVICE_TYPE_ACCEL:
            return error_set(err, LRNN_ERROR_NO_MEMORY,
                    "device %s has no memory of its own; it cannot hold layers", name);
        default: return add(list, dev, err);
    }
}

static bool add_names(struct device_list * list, const char * names, struct lrnn_error * err) {
    bool has_cpu = false;
    for (const char * p = names; *p != '\0';) {
        char         name[128];
        const size_t n = strcspn(p, ",");
        snprintf(name, sizeof(name), "%.*s", (int) n, p);
        if (!add_name(list, name, &has_cpu, err)) {
            return false;
        }
        p += n + (p[n] == ',');
    }
    if (has_cpu && list->n > 0) {
        return error_bad_input(err,
                "devices are '%s'; list the CPU alone or not at all: it takes the remaining layers",
                names);
    }
    return true;
}

// The share of each device: the user's, or in proportion to free memory.
static bool set_shares(struct device_list * list, const char * split, struct lrnn_error * err) {
    double sum = 0.0;
    for (int32_t i = 0; i < list->n; ++i) {
        struct device_choice * d = &list->at[i];
        size_t                 free_bytes = 0, total_bytes = 0;
        ggml_backend_dev_memory(d->dev, &free_bytes, &total_bytes);
        d->usable = (double) free_bytes * 0.875; // leaves room for states and activations
        d->share = d->usable > 0.0 ? d->usable : 1.0;
        if (split != NULL) {
            char * end;
            d->share = strtod(split, &end);
            if (end == split || !(d->share >= 0.0 && d->share <= 1e9) ||
                    *end != (i < list->n - 1 ? ',' : '\0')) {
                return error_bad_input(err,
                        "the tensor split needs one number per device, such as 3,1; expected %d",
                        list->n);
            }
            split = end + 1;
        }
        sum += d->share;
    }
    return sum > 0.0 || list->n == 0 ||
           error_bad_input(err, "the tensor split is zero for every device");
}

bool device_list_read(struct device_list * list, const struct lrnn_model_params * params,
        struct lrnn_error * err) {
    *list = (struct device_list) { 0 };
    if (params->devices != NULL) {
        if (!add_names(list, params->devices, err)) {
            return false;
        }
    } else if (params->n_gpu_layers != 0) {
        if (!add_type(list, GGML_BACKEND_DEVICE_TYPE_GPU, err) ||
                (list->n == 0 && !add_type(list, GGML_BACKEND_DEVICE_TYPE_IGPU, err))) {
            return false;
        }
    }
    return set_shares(list, params->tensor_split, err);
}

bool lrnn_model_params_check(const struct lrnn_model_params * params, struct lrnn_error * err) {
    struct device_list list;
    return device_list_read(&list, params, err);
}
