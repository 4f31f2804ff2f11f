#include "model/placement.h"

#include "lrnn.h"

#include <stdio.h>
#include <string.h>

// ---- Layers -------------------------------------------------------------------------------------

static bool is_output(const struct model_file * file, const char * name) {
    const bool tied = model_file_find_tensor(file, "output.weight") == NULL;
    return strncmp(name, "output", 6) == 0 || (tied && strcmp(name, "token_embd.weight") == 0);
}

// bytes [n_layer + 1]: the weights of each layer, then those of the output.
static void count_bytes(const struct lrnn_model * model, double * bytes) {
    for (size_t i = 0; i < model_file_n_tensors(model->file); ++i) {
        const struct model_tensor * t = model_file_tensor(model->file, i);
        int                         il;
        if (sscanf(t->name, "blk.%d.", &il) == 1 && il >= 0 &&
                il < model->n_layer + (model->draft != NULL)) { // which shares the output's device
            bytes[il] += (double) t->size;
        } else if (is_output(model->file, t->name)) {
            bytes[model->n_layer] += (double) t->size;
        }
    }
}

// Assigns the last n of n_all layers to the listed devices: choice [n_all] is 1 + an index into the
// list, or 0 for the CPU. Returns true if they fit.
static bool assign(const struct device_list * list, const double * bytes, int32_t n_all, int32_t n,
        int32_t * choice) {
    double all = 0.0, shares = 0.0, taken[DEVICE_LIST_MAX] = { 0 };
    for (int32_t i = n_all - n; i < n_all; ++i) {
        all += bytes[i];
    }
    for (int32_t i = 0; i < list->n; ++i) {
        shares += list->at[i].share;
    }
    memset(choice, 0, (size_t) n_all * sizeof(*choice));

    int32_t at = 0;                             // the device that takes layer i
    double  below = 0.0;                        // bytes of the layers before layer i
    double  limit = list->at[0].share / shares; // share of the devices up to `at`
    bool    fits = true;
    for (int32_t i = n_all - n; i < n_all; ++i) {
        const double middle = below + bytes[i] / 2.0; // decides where a layer belongs
        while (at < list->n - 1 && (middle > limit * all || list->at[at].share == 0.0)) {
            limit += list->at[++at].share / shares;
        }
        choice[i] = 1 + at;
        below += bytes[i];
        taken[at] += bytes[i];
        fits = fits && (list->at[at].usable == 0.0 || taken[at] <= list->at[at].usable);
    }
    return fits;
}

// Adds the chosen devices to the model.
static void apply(
        struct lrnn_model * model, const struct device_list * list, const int32_t * choice) {
    int32_t number[DEVICE_LIST_MAX] = { 0 }; // of a listed device in the model; 0: not used yet
    for (int32_t i = 0; i <= model->n_layer; ++i) {
        int32_t device = 0;
        if (choice[i] > 0) {
            const int32_t c = choice[i] - 1;
            if (number[c] == 0) {
                number[c] = model->n_devices++;
                model->devices[number[c]].dev = list->at[c].dev;
            }
            device = number[c];
        }
        if (i < model->n_layer) {
            model->layers[i].device = device;
        } else {
            model->output_device = model->layers[i].device = device; // also of the draft block
        }
    }
}

bool placement_of_layers(struct loader * l, const struct lrnn_model_params * params) {
    struct lrnn_model * model = l->model;
    struct device_list  list;

    model->devices[0].dev = ggml_backend_dev_by_type(GGML_BACKEND_DEVICE_TYPE_CPU);
    model->n_devices = 1;
    if (model->devices[0].dev == NULL) {
        return loader_fail(l, "ggml has no CPU device");
    }
    if (params == NULL) {
        return true;
    }
    struct lrnn_error why;
    if (!device_list_read(&list, params, &why)) {
        return loader_fail_with(l, &why, NULL);
    }
    const int32_t n_all = model->n_layer + 1;
    const bool    fit = params->n_gpu_layers < 0;
    int32_t       n = fit || params->n_gpu_layers > n_all ? n_all : params->n_gpu_layers;
    if (list.n == 0 || n == 0) {
        return true;
    }
    double *  bytes = loader_alloc(l, (size_t) n_all * sizeof(*bytes));
    int32_t * choice = loader_alloc(l, (size_t) n_all * sizeof(*choice));
    if (bytes == NULL || choice == NULL) {
        return false;
    }
    count_bytes(model, bytes);
    while (!assign(&list, bytes, n_all, n, choice) && fit && n > 0) {
        n--;
    }
    apply(model, &list, choice);
    return true;
}

// One line for each run of layers on the same device.
void placement_log(const struct lrnn_model * model) {
    if (model->log == NULL) {
        return;
    }
    for (int32_t first = 0, end; first <= model->n_layer; first = end) {
        const int32_t device =
                first < model->n_layer ? model->layers[first].device : model->output_device;
        for (end = first; end < model->n_layer && model->layers[end].device == device; ++end) {
        }
        const bool output = end == model->n_layer && model->output_device == device;
        char       layers[64] = "", text[256];
        if (end > first) {
            snprintf(layers, sizeof(layers), "layers %d to %d", first, end - 1);
        }
        snprintf(text, sizeof(text), "%s%s%s on %s", layers, end > first && output ? " and " : "",
                output ? "the output" : "", ggml_backend_dev_name(model->devices[device].dev));
        model->log(LRNN_LOG_INFO, text, model->log_user);
        end += output;
    }
}
