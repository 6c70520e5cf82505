/* A driver library without a driver: answers NVIDIA's management interface from a text file.
 *
 * The file named by NVML_STUB holds "cards N" and lines "<card> <question> <number>". It is read at every call, so a
 * test can change the answers while somebody is asking. A question that is not in it is "not supported"; a card with
 * the line "<card> lost 1" is lost. With "<card> steady_milliwatts N", the energy counter advances with the
 * clock. Compiled with -DWITHOUT_TEMPERATURE the library lacks that function altogether.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { SUCCESS = 0, INVALID_ARGUMENT = 2, NOT_SUPPORTED = 3, GPU_IS_LOST = 15 };

typedef struct { unsigned int gpu, memory; } utilization_t;
typedef struct { unsigned long long total, free, used; } memory_t;

static int look_up(long card, const char *question, unsigned long long *answer) {
    const char *path = getenv("NVML_STUB");
    FILE *file = path ? fopen(path, "r") : NULL;
    char word[100];
    long number;
    unsigned long long value;
    int result = NOT_SUPPORTED;
    if (!file) return NOT_SUPPORTED;
    while (fscanf(file, "%ld %99s %llu", &number, word, &value) == 3) {
        if (number == card && !strcmp(word, "lost") && value) result = GPU_IS_LOST;
        if (number == card && !strcmp(word, question) && result != GPU_IS_LOST) { *answer = value; result = SUCCESS; }
    }
    fclose(file);
    return result;
}

static int ask(void *card, const char *question, unsigned long long *answer) {
    return look_up((long)card - 1, question, answer);
}

static int ask_number(void *card, const char *question, unsigned int *out) {
    unsigned long long value = 0;
    int result = ask(card, question, &value);
    if (result == SUCCESS) *out = (unsigned int)value;
    return result;
}

int nvmlInitWithFlags(unsigned int flags) { (void)flags; return SUCCESS; }
int nvmlInit_v2(void) { return SUCCESS; }
int nvmlShutdown(void) { return SUCCESS; }
const char *nvmlErrorString(int result) { (void)result; return "an answer of the stub"; }

int nvmlDeviceGetCount_v2(unsigned int *count) {
    unsigned long long value = 0;
    look_up(-1, "cards", &value);
    *count = (unsigned int)value;
    return SUCCESS;
}

int nvmlDeviceGetHandleByIndex_v2(unsigned int index, void **card) { *card = (void *)((long)index + 1); return SUCCESS; }

int nvmlSystemGetDriverVersion(char *text, unsigned int length) { snprintf(text, length, "000.00"); return SUCCESS; }

int nvmlDeviceGetName(void *card, char *text, unsigned int length) {
    (void)card;
    snprintf(text, length, "Stub GPU");
    return SUCCESS;
}

int nvmlDeviceGetUtilizationRates(void *card, utilization_t *out) {
    out->memory = 0;
    return ask_number(card, "utilization", &out->gpu);
}

int nvmlDeviceGetMemoryInfo(void *card, memory_t *out) {
    int result = ask(card, "used", &out->used);
    if (result != SUCCESS) return result;
    result = ask(card, "total", &out->total);
    out->free = out->total - out->used;
    return result;
}

int nvmlDeviceGetPowerUsage(void *card, unsigned int *out) { return ask_number(card, "milliwatts", out); }
int nvmlDeviceGetTotalEnergyConsumption(void *card, unsigned long long *out) {
    unsigned long long steady = 0;
    struct timespec now;
    if (ask(card, "steady_milliwatts", &steady) != SUCCESS) return ask(card, "millijoules", out);
    clock_gettime(CLOCK_MONOTONIC, &now);
    *out = (unsigned long long)(steady * (now.tv_sec + now.tv_nsec / 1e9));
    return SUCCESS;
}
int nvmlDeviceGetEnforcedPowerLimit(void *card, unsigned int *out) { return ask_number(card, "limit", out); }
int nvmlDeviceGetComputeMode(void *card, unsigned int *out) { (void)card; *out = 0; return SUCCESS; }
int nvmlDeviceGetUUID(void *card, char *text, unsigned int length) {
    snprintf(text, length, "GPU-%ld", (long)card);
    return SUCCESS;
}
int nvmlDeviceGetPowerManagementLimit(void *card, unsigned int *out) { return ask_number(card, "limit", out); }

#ifndef WITHOUT_TEMPERATURE
int nvmlDeviceGetTemperature(void *card, int sensor, unsigned int *out) {
    (void)sensor;
    return ask_number(card, "temperature", out);
}
#endif

int nvmlDeviceGetClockInfo(void *card, int kind, unsigned int *out) {
    return ask_number(card, kind == 2 ? "memory_clock" : "clock", out);
}

int nvmlDeviceGetCurrentClocksEventReasons(void *card, unsigned long long *out) { return ask(card, "reasons", out); }
