// libcudart: devices, memory, streams, events, graphs, modules and launches.

#include "counts.h"
#include "device.h"
#include "memory.h"

#include <cuda_runtime_api.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <mutex>
#include <unordered_map>

#pragma GCC diagnostic ignored "-Wunused-parameter"

// ---- Streams ------------------------------------------------------------------------------------

struct device_graph {
    std::vector<std::function<void()>> work;
};

struct device_stream {
    std::vector<std::function<void()>> work;
    size_t                             done = 0; // run so far
    device_graph *                     capture = nullptr;
};

struct device_event { // everything before it on its stream
    device_stream * stream = nullptr;
    size_t          at = 0;
};

namespace {

std::recursive_mutex lock;
#define LOCKED std::lock_guard<std::recursive_mutex> locked(lock)

std::string                  error;
int                          current; // device
bool                         peers[2];
cuda_device_counts           counts;
std::vector<device_stream *> streams;

void run(device_stream * s, size_t until) {
    while (s->done < until && error.empty()) {
        const auto work = s->work[s->done++]; // it may add to the list
        work();
    }
    if (s->done == s->work.size() && s->done > 4096) { // events keep their positions
        std::fill(s->work.begin(), s->work.end(), nullptr);
    }
}

void run_all() {
    for (size_t i = 0; i < streams.size(); ++i) {
        run(streams[i], streams[i]->work.size());
    }
}

// What a program waits for. At random, the other streams run first: work on one of them that should
// have waited for this one comes too early.
void wait_for(device_stream * s, size_t until) {
    static uint32_t random = 1;
    random = random * 1664525 + 1013904223;
    for (size_t i = random >> 31 != 0 ? streams.size() : 0; i-- > 0;) {
        if (streams[i] != s) {
            run(streams[i], streams[i]->work.size());
        }
    }
    run(s, until);
}

cudaError_t status() {
    return error.empty() ? cudaSuccess : cudaErrorLaunchFailure;
}

bool is_capturing() {
    return std::any_of(streams.begin(), streams.end(),
            [](const device_stream * s) { return s->capture != nullptr; });
}

void not_while_capturing(const char * who) {
    if (is_capturing()) {
        device::fail(std::string(who) + " while a graph is captured");
    }
}

uint64_t setting(const char * name, uint64_t otherwise) {
    const char * text = getenv(name);
    return text != nullptr ? strtoull(text, nullptr, 10) : otherwise;
}

uint64_t memory_size() { // a test may change it
    return setting("LRNN_CUDA_MEMORY", 1 << 30);
}

void check_limits(const char * name, dim3 grid, dim3 block) {
    const uint64_t threads = (uint64_t) block.x * block.y * block.z;
    if (grid.x == 0 || grid.y == 0 || grid.z == 0 || grid.x > INT32_MAX || grid.y > 65535 ||
            grid.z > 65535 || threads == 0 || threads > 1024 || block.z > 64) {
        device::fail(std::string(name) + ": invalid grid or block");
    }
}

bool has_defect(const char * what) {
    const char * defect = getenv("LRNN_CUDA_BREAK");
    return defect != nullptr && strcmp(defect, what) == 0;
}

void break_argument(const std::string & kernel, std::vector<char> & arguments) {
    const char * defect = getenv("LRNN_CUDA_BREAK");
    const char * plus = defect != nullptr ? strchr(defect, '+') : nullptr;
    if (plus != nullptr && kernel.find(defect, 0, (size_t) (plus - defect)) != std::string::npos) {
        int32_t      x;
        const size_t at = strtoull(plus + 1, nullptr, 10);
        if (at + sizeof(x) <= arguments.size()) {
            memcpy(&x, &arguments[at], sizeof(x));
            ++x;
            memcpy(&arguments[at], &x, sizeof(x));
        }
    }
}

} // namespace

namespace device {

void fail(const std::string & what) {
    if (error.empty()) {
        error = what;
        fprintf(stderr, "cuda-device: %s\n", what.c_str());
    }
}

bool is_idle() {
    return setting("LRNN_CUDA_IDLE", 0) != 0;
}

device_stream * stream_of(void * handle) {
    static device_stream * legacy = nullptr; // also that of the thread
    if ((uintptr_t) handle > 2) {
        return (device_stream *) handle;
    }
    if (legacy == nullptr) {
        legacy = new device_stream;
        streams.push_back(legacy);
    }
    return legacy;
}

void submit(device_stream * stream, std::function<void()> work) {
    (stream->capture != nullptr ? stream->capture->work : stream->work).push_back(std::move(work));
}

char * bytes_of(const void * address, size_t size, bool write, const char * who) {
    if (size > 0 && !is_allocated(address, size)) {
        fail(std::string(who) + ": " + std::to_string(size) + " bytes out of bounds");
        return nullptr;
    }
    if (write && size > 0) {
        define((void *) address, size, true);
    }
    return (char *) address;
}

} // namespace device

using device::stream_of;
using device::submit;

// ---- Modules and kernels ------------------------------------------------------------------------

namespace {

struct module {
    const char *     text = nullptr; // PTX
    size_t           size = 0;
    bool             ready = false;
    ptx::module_text common; // variables
    ptx::module      code;
};

struct kernel {
    module *            from;
    std::string         name;
    size_t              shared = 48 * 1024; // limit
    bool                ran = false;
    const ptx::kernel * code = nullptr;
    ptx::counts         n;
};

// by host function. Modules register before the variables of this library are constructed.
std::unordered_map<const void *, kernel *> & kernels() {
    static auto * all = new std::unordered_map<const void *, kernel *>;
    return *all;
}

// The end of a block that begins with a brace at or after `at`
size_t end_of_block(const char * text, size_t size, size_t at) {
    int depth = 0;
    for (; at < size; ++at) {
        depth += (text[at] == '{') - (text[at] == '}');
        if (text[at] == '}' && depth == 0) {
            return at + 1;
        }
    }
    return size;
}

// Variables of a module: statements that begin a line. Shared ones come before the first kernel;
// later ones belong to a kernel.
void prepare(module * m) {
    static const char * const begins[] = { ".global", ".const", ".visible .global",
        ".visible .const", ".extern .shared", ".shared" };
    const char *              first = (const char *) memmem(m->text, m->size, ".entry", 6);
    std::string               text;
    for (const char *p = m->text, *end = m->text + m->size; p != nullptr && p < end;) {
        const char * line = (const char *) memchr(p, '\n', (size_t) (end - p));
        for (const char * begin : begins) {
            if (strncmp(p, begin, strlen(begin)) == 0 &&
                    (p < first || strcmp(begin, ".shared") != 0)) {
                text.append(p, line != nullptr ? line + 1 : end);
            }
        }
        p = line != nullptr ? line + 1 : nullptr;
    }
    const std::string wrong = ptx::parse_text(text, "variables", &m->common);
    if (!wrong.empty()) {
        device::fail(wrong);
    }
    for (const ptx::variable_text & v : m->common.variables) {
        char * p = (char *) device::allocate(device::VARIABLES, v.size, UINT64_MAX);
        memcpy(p, v.bytes.data(), v.size);
        device::define(p, v.size, true);
        m->code.symbols[v.name] = (uint64_t) (uintptr_t) p;
    }
    m->ready = true;
}

// Decodes a kernel when it is used for the first time.
const ptx::kernel * code_of(kernel * k) {
    if (k->code != nullptr) {
        return k->code;
    }
    module * m = k->from;
    if (!m->ready) {
        prepare(m);
    }
    const std::string entry = ".entry " + k->name + "(";
    const char *      at = (const char *) memmem(m->text, m->size, entry.data(), entry.size());
    if (at == nullptr) {
        device::fail(k->name + " is not in the PTX of its module");
        return nullptr;
    }
    const size_t     begin = (size_t) (at - m->text);
    ptx::module_text one;
    std::string      wrong = ptx::parse_text(
            std::string(at, end_of_block(m->text, m->size, begin) - begin), k->name, &one);
    one.shared = m->common.shared;
    wrong = wrong.empty() ? m->code.decode(one, k->name) : wrong;
    if (!wrong.empty()) {
        device::fail(wrong);
        return nullptr;
    }
    return k->code = &m->code.kernels.at(k->name);
}

cudaError_t launch(kernel * k, dim3 grid, dim3 block, void ** args, size_t shared, void * stream) {
    if (k == nullptr) {
        device::fail("a kernel that is not registered");
        return cudaErrorInvalidDeviceFunction;
    }
    k->ran = true;
    ++counts.kernels;
    check_limits(k->name.c_str(), grid, block);
    if (shared > k->shared) {
        device::fail(k->name + ": more shared memory than its limit");
    }
    const ptx::kernel * code = device::is_idle() ? nullptr : code_of(k);
    if (code == nullptr) {
        return status();
    }
    if (shared + code->shared_bytes > 200 * 1024) {
        device::fail(k->name + ": more shared memory than the device has");
    }
    std::vector<char> bytes(code->param_bytes);
    for (size_t i = 0; i < code->params.size(); ++i) {
        memcpy(&bytes[code->params[i].offset], args[i], code->params[i].size);
    }
    break_argument(k->name, bytes);
    const int where = current;
    submit(stream_of(stream), [=]() {
        device::kernel_memory memory(where, peers[where]);
        const std::string     wrong =
                ptx::launch(*code, { grid.x, grid.y, grid.z }, { block.x, block.y, block.z },
                        bytes.data(), bytes.size(), memory, MMA_UP, &k->n, (uint32_t) shared);
        if (!wrong.empty()) {
            device::fail(wrong);
        }
    });
    return status();
}

void report() {
    const char * path = getenv("LRNN_CUDA_REPORT");
    FILE *       f = path != nullptr ? fopen(path, "w") : nullptr;
    if (f == nullptr) {
        return;
    }
    for (const auto & one : kernels()) {
        const kernel & k = *one.second;
        if (k.n.launches > 0) {
            fprintf(f, "%s %lld launches %lld instructions\n", k.name.c_str(),
                    (long long) k.n.launches, (long long) k.n.instructions);
        }
    }
    fclose(f);
}

struct {
    dim3   grid, block;
    size_t shared;
    void * stream;
} configuration;

} // namespace

extern "C" {

// Functions that code generated by nvcc calls; no header declares them.

void ** __cudaRegisterFatBinary(void * wrapper) {
    LOCKED;
    struct header { // of a fat binary
        uint32_t magic;
        uint16_t version, size;
        uint64_t bytes;
    };
    struct entry {              // of a fat binary: code for one architecture
        uint16_t kind, version; // kind 1: PTX
        uint32_t size;          // of this header
        uint64_t bytes;
    };
    static const int at_end = atexit(report);
    (void) at_end;
    auto *       m = new module;
    const char * at = (const char *) ((void **) wrapper)[1];
    const auto * all = (const header *) at;
    const char * end = at + all->size + all->bytes;
    for (at += all->size; at < end;) {
        const auto * one = (const entry *) at;
        if (one->kind == 1) {
            m->text = at + one->size;
            m->size = strnlen(m->text, one->bytes);
        }
        at += one->size + one->bytes;
    }
    return (void **) m;
}
void __cudaRegisterFatBinaryEnd(void ** handle) {}
void __cudaUnregisterFatBinary(void ** handle) {}
void __cudaRegisterVar(void ** handle, char * host, char * name, const char * again, int ext,
        size_t size, int constant, int global) {}

void __cudaRegisterFunction(void ** handle, const char * host, char * fun, const char * name,
        int limit, void * tid, void * bid, void * block, void * grid, int * warp) {
    LOCKED;
    auto * k = new kernel;
    k->from = (module *) handle;
    k->name = name;
    kernels()[host] = k;
}

unsigned __cudaPushCallConfiguration(
        dim3 grid, dim3 block, size_t shared, struct CUstream_st * stream) {
    configuration = { grid, block, shared, stream };
    return 0;
}
cudaError_t __cudaPopCallConfiguration(dim3 * grid, dim3 * block, size_t * shared, void * stream) {
    *grid = configuration.grid;
    *block = configuration.block;
    *shared = configuration.shared;
    *(void **) stream = configuration.stream;
    return cudaSuccess;
}

static kernel * find(const void * host) {
    const auto found = kernels().find(host);
    return found == kernels().end() ? nullptr : found->second;
}

cudaError_t __cudaGetKernel(cudaKernel_t * k, const void * host) {
    LOCKED;
    *k = (cudaKernel_t) find(host);
    return *k == nullptr ? cudaErrorInvalidDeviceFunction : cudaSuccess;
}
cudaError_t __cudaLaunchKernel(
        cudaKernel_t k, dim3 grid, dim3 block, void ** args, size_t shared, cudaStream_t stream) {
    LOCKED;
    return launch((kernel *) k, grid, block, args, shared, stream);
}
cudaError_t cudaLaunchKernelExC(const cudaLaunchConfig_t * c, const void * f, void ** args) {
    LOCKED;
    return launch(find(f), c->gridDim, c->blockDim, args, c->dynamicSmemBytes, c->stream);
}
cudaError_t cudaLaunchCooperativeKernel(
        const void * f, dim3 grid, dim3 block, void ** args, size_t shared, cudaStream_t stream) {
    LOCKED;
    return launch(find(f), grid, block, args, shared, stream);
}
cudaError_t cudaFuncSetAttribute(const void * f, enum cudaFuncAttribute attr, int value) {
    LOCKED;
    if (find(f) != nullptr && attr == cudaFuncAttributeMaxDynamicSharedMemorySize) {
        find(f)->shared = std::max((size_t) value, (size_t) 48 * 1024);
    }
    return value > 163 * 1024 ? cudaErrorInvalidValue : cudaSuccess;
}
cudaError_t cudaFuncGetAttributes(struct cudaFuncAttributes * attr, const void * f) {
    memset(attr, 0, sizeof(*attr));
    attr->maxThreadsPerBlock = 1024;
    attr->numRegs = 64;
    return cudaSuccess;
}
cudaError_t cudaOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(
        int * n, const void * f, int threads, size_t shared, unsigned flags) {
    *n = 1;
    return cudaSuccess;
}

// ---- Memory -------------------------------------------------------------------------------------

cudaError_t cudaMalloc(void ** p, size_t size) {
    LOCKED;
    not_while_capturing("cudaMalloc");
    *p = device::allocate(current, size, memory_size());
    if (*p != nullptr && device::is_idle()) {
        memset(*p, 0, size);
        device::define(*p, size, true);
    }
    return *p == nullptr ? cudaErrorMemoryAllocation : status();
}
cudaError_t cudaMallocManaged(void ** p, size_t size, unsigned flags) {
    return cudaMalloc(p, size);
}
cudaError_t cudaFree(void * p) {
    LOCKED;
    not_while_capturing("cudaFree");
    run_all(); // it waits
    if (p != nullptr && !device::release(p)) {
        device::fail("cudaFree of something that is not allocated");
    }
    return status();
}
cudaError_t cudaMallocHost(void ** p, size_t size) {
    LOCKED;
    not_while_capturing("cudaMallocHost");
    *p = aligned_alloc(256, (size + 255) / 256 * 256);
    return *p == nullptr ? cudaErrorMemoryAllocation : cudaSuccess;
}
cudaError_t cudaFreeHost(void * p) {
    LOCKED;
    not_while_capturing("cudaFreeHost");
    run_all();
    free(p);
    return cudaSuccess;
}
cudaError_t cudaHostRegister(void * p, size_t size, unsigned flags) {
    return cudaErrorNotSupported;
}
cudaError_t cudaHostUnregister(void * p) {
    return cudaSuccess;
}
cudaError_t cudaMemGetInfo(size_t * n_free, size_t * n_total) {
    LOCKED;
    *n_total = memory_size();
    *n_free = *n_total - std::min((uint64_t) *n_total, device::memory_in_use(current));
    return cudaSuccess;
}

static void copy_now(char * to, const char * from, size_t size, const char * who) {
    const bool into = device::device_of(to) >= 0, out = device::device_of(from) >= 0;
    if ((into && device::bytes_of(to, size, false, who) == nullptr) ||
            (out && device::bytes_of(from, size, false, who) == nullptr)) {
        return;
    }
    if (into && out) {
        device::move(to, from, size);
        return;
    }
    if (out && !device::is_defined(from, size)) {
        device::fail(std::string(who) + ": bytes that nobody has written reach the host");
    }
    memcpy(to, from, size);
    if (into) {
        device::define(to, size, true);
    }
}

cudaError_t cudaMemcpyAsync(
        void * to, const void * from, size_t size, enum cudaMemcpyKind kind, cudaStream_t stream) {
    LOCKED;
    char *       t = (char *) to;
    const char * f = (const char *) from;
    if (size == 0) {
        return status();
    }
    if (device::device_of(from) < 0 && stream_of(stream)->capture == nullptr) {
        // CUDA may read the memory of the host before it returns
        auto bytes = std::make_shared<std::vector<char>>(f, f + size);
        submit(stream_of(stream), [=]() { copy_now(t, bytes->data(), size, "cudaMemcpyAsync"); });
    } else {
        submit(stream_of(stream), [=]() { copy_now(t, f, size, "cudaMemcpyAsync"); });
    }
    return status();
}
cudaError_t cudaMemcpyPeerAsync(void * to, int to_device, const void * from, int from_device,
        size_t size, cudaStream_t stream) {
    LOCKED;
    if (device::device_of(to) != to_device || device::device_of(from) != from_device) {
        device::fail("cudaMemcpyPeerAsync: memory of another device");
    }
    if (has_defect("peer")) {
        return status();
    }
    return cudaMemcpyAsync(to, from, size, cudaMemcpyDefault, stream);
}
cudaError_t cudaMemcpy2DAsync(void * to, size_t to_pitch, const void * from, size_t from_pitch,
        size_t width, size_t height, enum cudaMemcpyKind kind, cudaStream_t stream) {
    for (size_t i = 0; i < height; ++i) {
        cudaMemcpyAsync((char *) to + i * to_pitch, (const char *) from + i * from_pitch, width,
                kind, stream);
    }
    return status();
}
cudaError_t cudaMemsetAsync(void * p, int value, size_t size, cudaStream_t stream) {
    LOCKED;
    submit(stream_of(stream), [=]() {
        if (device::bytes_of(p, size, true, "cudaMemset") != nullptr) {
            memset(p, value, size);
        }
    });
    return status();
}
cudaError_t cudaMemset(void * p, int value, size_t size) {
    LOCKED;
    not_while_capturing("cudaMemset");
    cudaMemsetAsync(p, value, size, nullptr);
    run_all();
    return status();
}

// ---- Devices ------------------------------------------------------------------------------------

cudaError_t cudaGetDeviceCount(int * n) {
    *n = (int) std::min(setting("LRNN_CUDA_DEVICES", 1), (uint64_t) 2);
    return cudaSuccess;
}
cudaError_t cudaGetDevice(int * device) {
    *device = current;
    return cudaSuccess;
}
cudaError_t cudaSetDevice(int device) {
    int n = 0;
    cudaGetDeviceCount(&n);
    if (device < 0 || device >= n) {
        return cudaErrorInvalidDevice;
    }
    current = device;
    return cudaSuccess;
}
cudaError_t cudaSetDeviceFlags(unsigned flags) {
    return cudaSuccess;
}
cudaError_t cudaDeviceCanAccessPeer(int * can, int a, int b) {
    *can = a != b;
    return cudaSuccess;
}
cudaError_t cudaDeviceEnablePeerAccess(int peer, unsigned flags) {
    peers[current] = true;
    return cudaSuccess;
}
cudaError_t cudaDeviceGetPCIBusId(char * id, int size, int device) {
    snprintf(id, (size_t) size, "0000:0%d:00.0", device);
    return cudaSuccess;
}
cudaError_t cudaDeviceGetAttribute(int * value, enum cudaDeviceAttr attr, int device) {
    *value = 0;
    return cudaSuccess;
}
cudaError_t cudaDeviceSynchronize(void) {
    LOCKED;
    not_while_capturing("cudaDeviceSynchronize");
    run_all();
    return status();
}
cudaError_t cudaGetLastError(void) {
    return status();
}
cudaError_t cudaPeekAtLastError(void) {
    return status();
}
const char * cudaGetErrorString(cudaError_t e) {
    return e == cudaErrorMemoryAllocation ? "out of memory"
           : error.empty()                ? "an error of the software device"
                                          : error.c_str();
}
cudaError_t cudaGetDeviceProperties(struct cudaDeviceProp * prop, int device) {
    memset(prop, 0, sizeof(*prop));
    snprintf(prop->name, sizeof(prop->name), "software device");
    const int compute = (int) setting("LRNN_CUDA_COMPUTE", 80); // 70: Volta
    prop->major = compute / 10;
    prop->minor = compute % 10;
    prop->warpSize = 32;
    prop->multiProcessorCount = device::is_idle() ? 108 : 4;
    prop->maxThreadsPerBlock = 1024;
    prop->maxThreadsPerMultiProcessor = 2048;
    prop->sharedMemPerBlock = 48 * 1024;
    prop->sharedMemPerBlockOptin = 163 * 1024;
    prop->totalGlobalMem = memory_size();
    return cudaSuccess;
}

// ---- Streams, events and graphs -----------------------------------------------------------------

cudaError_t cudaStreamCreateWithFlags(cudaStream_t * stream, unsigned flags) {
    LOCKED;
    streams.push_back(new device_stream);
    *stream = (cudaStream_t) streams.back();
    return cudaSuccess;
}
cudaError_t cudaStreamDestroy(cudaStream_t stream) {
    LOCKED;
    run(stream_of(stream), stream_of(stream)->work.size());
    return status(); // events may still name it
}
cudaError_t cudaStreamSynchronize(cudaStream_t stream) {
    LOCKED;
    not_while_capturing("cudaStreamSynchronize");
    if (!has_defect("synchronize")) {
        wait_for(stream_of(stream), stream_of(stream)->work.size());
    }
    return status();
}
cudaError_t cudaEventCreateWithFlags(cudaEvent_t * event, unsigned flags) {
    *event = (cudaEvent_t) new device_event;
    return cudaSuccess;
}
cudaError_t cudaEventDestroy(cudaEvent_t event) {
    delete (device_event *) event;
    return cudaSuccess;
}
cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream) {
    LOCKED;
    device_stream * s = stream_of(stream);
    *(device_event *) event = { s, s->work.size() };
    return status();
}
cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned flags) {
    LOCKED;
    const device_event e = *(device_event *) event;
    if (e.stream != nullptr && e.stream != stream_of(stream) && !has_defect("event")) {
        submit(stream_of(stream), [=]() { run(e.stream, e.at); });
    }
    return status();
}
cudaError_t cudaEventSynchronize(cudaEvent_t event) {
    LOCKED;
    not_while_capturing("cudaEventSynchronize");
    const device_event e = *(device_event *) event;
    if (e.stream != nullptr) {
        wait_for(e.stream, e.at);
    }
    return status();
}
cudaError_t cudaStreamBeginCapture(cudaStream_t stream, enum cudaStreamCaptureMode mode) {
    LOCKED;
    stream_of(stream)->capture = new device_graph;
    ++counts.captures;
    return status();
}
cudaError_t cudaStreamEndCapture(cudaStream_t stream, cudaGraph_t * graph) {
    LOCKED;
    *graph = (cudaGraph_t) stream_of(stream)->capture;
    stream_of(stream)->capture = nullptr;
    return status();
}
cudaError_t cudaGraphInstantiate(
        cudaGraphExec_t * exec, cudaGraph_t graph, unsigned long long flags) {
    static const device_graph first = *(device_graph *) graph;
    *exec = (cudaGraphExec_t) new device_graph(
            has_defect("graph") ? first : *(device_graph *) graph);
    return cudaSuccess;
}
cudaError_t cudaGraphExecUpdate(
        cudaGraphExec_t exec, cudaGraph_t graph, cudaGraphExecUpdateResultInfo * info) {
    memset(info, 0, sizeof(*info)); // success
    if (!has_defect("graph")) {
        *(device_graph *) exec = *(device_graph *) graph;
    }
    return cudaSuccess;
}
cudaError_t cudaGraphLaunch(cudaGraphExec_t exec, cudaStream_t stream) {
    LOCKED;
    ++counts.graphs;
    for (const auto & work : ((device_graph *) exec)->work) {
        submit(stream_of(stream), work);
    }
    return status();
}
cudaError_t cudaGraphDestroy(cudaGraph_t graph) {
    delete (device_graph *) graph;
    return cudaSuccess;
}
cudaError_t cudaGraphExecDestroy(cudaGraphExec_t exec) {
    delete (device_graph *) exec;
    return cudaSuccess;
}

// ---- Counts -------------------------------------------------------------------------------------

cuda_device_counts cuda_device_get(void) {
    return counts;
}
bool cuda_device_ran(const char * part) {
    return std::any_of(kernels().begin(), kernels().end(), [=](const auto & one) {
        return one.second->ran && strstr(one.second->name.c_str(), part) != nullptr;
    });
}
void cuda_device_reset(void) {
    counts = {};
    for (const auto & one : kernels()) {
        one.second->ran = false;
    }
}

} // extern "C"
