/* Random words to noise, the compiled form of `vecveil.randomness.elementary`.
 *
 * Every function here gives the same bits as its NumPy counterpart there: only +, -, *, / and square
 * roots of IEEE doubles in a fixed order, no library function, no contraction to fused operations
 * (-ffp-contract=off). So keyed noise is the same on every machine, with this module or without it.
 *
 * The loops have no branches and no dependence between turns, so that the compiler vectorises them.
 */
#define PY_SSIZE_T_CLEAN
#define Py_LIMITED_API 0x030B0000
#include <Python.h>
#include <float.h>
#include <math.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__) && defined(__gnu_linux__)
#define CLONES __attribute__((target_clones("avx512f", "avx2", "default")))
#else
#define CLONES
#endif
#if defined(__GNUC__) || defined(__clang__)
#define INLINE static inline __attribute__((always_inline))
#else
#define INLINE static inline
#endif

#ifdef _MSC_VER
#define restrict __restrict
#endif

#define ONE 0x3FF0000000000000ULL

INLINE double as_double(uint64_t bits) { double d; memcpy(&d, &bits, 8); return d; }
INLINE uint64_t as_bits(double d) { uint64_t bits; memcpy(&bits, &d, 8); return bits; }

/* -log(x) for x in [2^-127, 2^127]; `elementary.negative_log` says how. */
INLINE double negative_log(double x)
{
    uint64_t bits = as_bits(x);
    uint64_t shifted = bits - 0x3FE6A09E667F3BCDULL + (128ULL << 52);
    double k = as_double(0x4330000000000000ULL | (shifted >> 52)) - (4503599627370496.0 + 128.0);
    double z = as_double(bits - ((shifted & 0xFFF0000000000000ULL) - (128ULL << 52)));
    double f = z - 1.0;
    double s = f / (f + 2.0);
    double s2 = s * s;
    double p = 1.0 / 21;
    p = p * s2 + 1.0 / 19;
    p = p * s2 + 1.0 / 17;
    p = p * s2 + 1.0 / 15;
    p = p * s2 + 1.0 / 13;
    p = p * s2 + 1.0 / 11;
    p = p * s2 + 1.0 / 9;
    p = p * s2 + 1.0 / 7;
    p = p * s2 + 1.0 / 5;
    p = p * s2 + 1.0 / 3;
    p = p * s2;
    double twice = 2.0 * s;
    return -(k * 6.93147180369123816490e-01 + (twice + (twice * p + k * 1.90821492927058770002e-10)));
}

/* A 64-bit word to (word + 1/2) / 2^64, in (0, 1]. */
INLINE double open_uniform(uint64_t word)
{
    double high = as_double(ONE | (word >> 12)) - 1.0;
    double low = as_double(ONE | (word & 0xFFF)) - 1.0;
    return high + (low + 0x1p-53) * 0x1p-12;
}

INLINE double exponential(uint64_t word) { return negative_log(open_uniform(word)); }

/* Two standard normals from two words (Box-Muller). */
INLINE void normal_pair(uint64_t radius, uint64_t angle, double *first, double *second)
{
    double r = sqrt(2.0 * exponential(radius));
    double t = as_double(ONE | (angle >> 12)) - 1.5 + 0x1p-53;
    double a = t * 1.57079632679489661923;
    double b = a * a;
    double p = 1.0 / 355687428096000.0;
    p = p * b - 1.0 / 1307674368000.0;
    p = p * b + 1.0 / 6227020800.0;
    p = p * b - 1.0 / 39916800.0;
    p = p * b + 1.0 / 362880.0;
    p = p * b - 1.0 / 5040.0;
    p = p * b + 1.0 / 120.0;
    p = p * b - 1.0 / 6.0;
    double sine = a + a * (b * p);
    double q = 1.0 / 20922789888000.0;
    q = q * b - 1.0 / 87178291200.0;
    q = q * b + 1.0 / 479001600.0;
    q = q * b - 1.0 / 3628800.0;
    q = q * b + 1.0 / 40320.0;
    q = q * b - 1.0 / 720.0;
    q = q * b + 1.0 / 24.0;
    q = q * b - 0.5;
    double cosine = 1.0 + b * q;
    uint64_t c = as_bits(cosine) ^ ((angle & 2) << 62);
    uint64_t s = as_bits(sine);
    uint64_t swap = (0ULL - (angle & 1)) & (c ^ s);
    *first = r * as_double(c ^ swap);
    *second = r * as_double(s ^ swap);
}

/* Row of 2 * pairs words, radii first, to 2 * pairs normals, cosines first. */
CLONES static void normal_row(const uint64_t *words, int64_t pairs, double *out)
{
    for (int64_t j = 0; j < pairs; j++)
        normal_pair(words[j], words[pairs + j], out + j, out + pairs + j);
}

/* Sums over eight interleaved lanes, then over the lanes pairwise: a fixed order that vectorises. */
#if defined(__GNUC__) || defined(__clang__)
typedef double four __attribute__((vector_size(32)));

CLONES static double dot(const double *x, const double *y, int64_t n)
{
    double lane[8];
    four low = {0}, high = {0}, a, b;
    int64_t i = 0;
    for (; i + 8 <= n; i += 8) {
        memcpy(&a, x + i, 32);
        memcpy(&b, y + i, 32);
        low += a * b;
        memcpy(&a, x + i + 4, 32);
        memcpy(&b, y + i + 4, 32);
        high += a * b;
    }
    memcpy(lane, &low, 32);
    memcpy(lane + 4, &high, 32);
#else
static double dot(const double *x, const double *y, int64_t n)
{
    double lane[8] = {0};
    int64_t i = 0;
    for (; i + 8 <= n; i += 8)
        for (int l = 0; l < 8; l++)
            lane[l] += x[i + l] * y[i + l];
#endif
    for (int l = 0; i < n; i++, l++)
        lane[l] += x[i] * y[i];
    return ((lane[0] + lane[4]) + (lane[2] + lane[6])) + ((lane[1] + lane[5]) + (lane[3] + lane[7]));
}

/* y = round(x + factor * root * noise) to multiples of step; returns whether all |y| <= limit. */
CLONES static int add_row(const double *restrict x, const double *restrict noise, double factor,
                          const double *restrict root, double step, double inverse, double limit,
                          int64_t n, double *restrict y)
{
    uint64_t bad = 0;
    if (root)
        for (int64_t i = 0; i < n; i++) {
            double v = rint((x[i] + factor * noise[i] * root[i]) * inverse) * step;
            y[i] = v;
            bad |= fabs(v) <= limit ? 0 : 1;
        }
    else
        for (int64_t i = 0; i < n; i++) {
            double v = rint((x[i] + factor * noise[i]) * inverse) * step;
            y[i] = v;
            bad |= fabs(v) <= limit ? 0 : 1;
        }
    return bad == 0;
}

CLONES static void widen(const float *x, int64_t n, double *out)
{
    for (int64_t i = 0; i < n; i++) out[i] = (double)x[i];
}

CLONES static void narrow(const double *x, int64_t n, float *out)
{
    for (int64_t i = 0; i < n; i++) out[i] = (float)x[i];
}

CLONES static void scale_row(const double *x, double factor, int64_t n, double *out)
{
    for (int64_t i = 0; i < n; i++) out[i] = factor * x[i];
}

CLONES static void subtract(double *t, const double *x, double factor, int64_t n)
{
    for (int64_t i = 0; i < n; i++) t[i] = t[i] - factor * x[i];
}

/* Gamma(shape, 1) by Marsaglia and Tsang (2000): tries of three words each. 0.0: none was accepted. */
static double gamma_of(const uint64_t *words, int64_t tries, double shape)
{
    double d = shape - 1.0 / 3, c = 1.0 / (3.0 * sqrt(d));
    for (int64_t t = 0; t < tries; t++) {
        double x, unused;
        normal_pair(words[3 * t], words[3 * t + 1], &x, &unused);
        double v = 1.0 + c * x;
        v = v * v * v;
        if (!(v > 1e-30)) continue;
        if (-exponential(words[3 * t + 2]) < 0.5 * x * x + d * (1.0 - v - negative_log(v)))
            return d * v;
    }
    return 0.0;
}

static int check(Py_ssize_t have, int64_t want, const char *name)
{
    if (want >= 0 && have == want) return 1;
    PyErr_Format(PyExc_ValueError, "%s has %zd bytes, not %lld", name, have, (long long)want);
    return 0;
}

/* normals(words, out, rows, stride, pairs): standard normals (rows, 2 pairs). */
static PyObject *normals(PyObject *self, PyObject *args)
{
    Py_buffer words, out;
    long long rows, stride, pairs;
    if (!PyArg_ParseTuple(args, "y*w*LLL", &words, &out, &rows, &stride, &pairs)) return NULL;
    int ok = rows >= 0 && pairs >= 0 && stride >= 2 * pairs && check(words.len, 8 * rows * stride, "words")
        && check(out.len, 16 * rows * pairs, "out");
    if (ok) {
        Py_BEGIN_ALLOW_THREADS
        for (long long r = 0; r < rows; r++)
            normal_row((const uint64_t *)words.buf + r * stride, pairs, (double *)out.buf + r * 2 * pairs);
        Py_END_ALLOW_THREADS
    }
    PyBuffer_Release(&words);
    PyBuffer_Release(&out);
    if (!ok) {
        if (!PyErr_Occurred()) PyErr_SetString(PyExc_ValueError, "sizes");
        return NULL;
    }
    Py_RETURN_NONE;
}

/* gammas(words, out, rows, stride, first, tries, shape): one Gamma(shape, 1) a row, 0 where all tries failed. */
static PyObject *gammas(PyObject *self, PyObject *args)
{
    Py_buffer words, out;
    long long rows, stride, first, tries;
    double shape;
    if (!PyArg_ParseTuple(args, "y*w*LLLLd", &words, &out, &rows, &stride, &first, &tries, &shape)) return NULL;
    int ok = rows >= 0 && first >= 0 && tries >= 0 && stride >= first + 3 * tries
        && check(words.len, 8 * rows * stride, "words") && check(out.len, 8 * rows, "out");
    if (ok) {
        Py_BEGIN_ALLOW_THREADS
        for (long long r = 0; r < rows; r++)
            ((double *)out.buf)[r] = gamma_of((const uint64_t *)words.buf + r * stride + first, tries, shape);
        Py_END_ALLOW_THREADS
    }
    PyBuffer_Release(&words);
    PyBuffer_Release(&out);
    if (!ok) {
        if (!PyErr_Occurred()) PyErr_SetString(PyExc_ValueError, "sizes");
        return NULL;
    }
    Py_RETURN_NONE;
}

enum { ADD, ADD_DIRECTION, TURN, ADD_GIVEN };

/* release(kind, x, words, factors, root, out, rows, n, stride, wide, step) -> whether all of y is finite in its type and has room for the noise there.
 *   ADD:            y = x + factor * root * N
 *   ADD_DIRECTION:  y = x + factor * root * N / |N|
 *   TURN:           y = factor[0] * x/|x| + factor[1] * u, u the unit tangent along N at x
 *   ADD_GIVEN:      y = x + factor * noise, noise (rows, n) doubles in place of the words
 */
static PyObject *release(PyObject *self, PyObject *args)
{
    struct { Py_buffer x, words, factors, root, out; } b;
    int kind, wide;
    long long rows, n, stride;
    double step;
    int finite = 1;
    if (!PyArg_ParseTuple(args, "iy*y*y*y*w*LLLpd", &kind, &b.x, &b.words, &b.factors, &b.root, &b.out,
                          &rows, &n, &stride, &wide, &step))
        return NULL;
    int64_t pairs = (n + 1) / 2, item = wide ? 8 : 4;
    int ok = rows >= 0 && n > 0 && stride >= (kind == ADD_GIVEN ? n : 2 * pairs) && check(b.x.len, item * rows * n, "x")
        && check(b.out.len, item * rows * n, "out") && check(b.words.len, 8 * rows * stride, "words")
        && check(b.factors.len, 8 * rows * (kind == TURN ? 2 : 1), "factors")
        && (b.root.len == 0 || check(b.root.len, 8 * n, "root"));
    double *scratch = ok ? malloc((size_t)(2 * pairs + 2 * n) * 8) : NULL;
    if (ok && !scratch) {
        PyErr_NoMemory();
        ok = 0;
    }
    if (ok) {
        Py_BEGIN_ALLOW_THREADS
        double *noise = scratch, *x = scratch + 2 * pairs, *y = x + n;
        const double *root = b.root.len ? (const double *)b.root.buf : NULL, *factors = b.factors.buf;
        double inverse = 1.0 / step, limit = wide ? DBL_MAX : FLT_MAX;
        /* The grid is 2^-16 of the noise: beyond 2^52 steps a double does not reach the grid, and beyond 2^40
           the spacing of floats exceeds the noise itself. */
        double most = (wide ? 0x1p52 : 0x1p40) * step;
        if (most < limit) limit = most;
        for (long long r = 0; r < rows; r++) {
            const double *added = noise;
            if (kind == ADD_GIVEN)
                added = (const double *)b.words.buf + r * stride;
            else
                normal_row((const uint64_t *)b.words.buf + r * stride, pairs, noise);
            const double *row = (const double *)b.x.buf + r * n;
            double *target = (double *)b.out.buf + r * n;
            if (!wide) {
                widen((const float *)b.x.buf + r * n, n, x);
                row = x;
                target = y;
            }
            if (kind == TURN) {
                scale_row(row, 1.0 / sqrt(dot(row, row, n)), n, x);
                subtract(noise, x, dot(noise, x, n), n);
                double length = sqrt(dot(noise, noise, n));
                scale_row(x, factors[2 * r], n, x);
                finite &= add_row(x, noise, factors[2 * r + 1] / length, NULL, step, inverse, limit, n, target);
            } else {
                double factor = factors[r];
                if (kind == ADD_DIRECTION) factor = factor / sqrt(dot(noise, noise, n));
                finite &= add_row(row, added, factor, root, step, inverse, limit, n, target);
            }
            if (!wide) narrow(y, n, (float *)b.out.buf + r * n);
        }
        Py_END_ALLOW_THREADS
    }
    free(scratch);
    PyBuffer_Release(&b.x);
    PyBuffer_Release(&b.words);
    PyBuffer_Release(&b.factors);
    PyBuffer_Release(&b.root);
    PyBuffer_Release(&b.out);
    if (!ok) {
        if (!PyErr_Occurred()) PyErr_SetString(PyExc_ValueError, "sizes");
        return NULL;
    }
    return PyBool_FromLong(finite);
}

/* exponentials(words, out, count): one Exponential(1) a word. */
static PyObject *exponentials(PyObject *self, PyObject *args)
{
    Py_buffer words, out;
    long long count;
    if (!PyArg_ParseTuple(args, "y*w*L", &words, &out, &count)) return NULL;
    int ok = check(words.len, count < 0 ? -1 : 8 * count, "words") && check(out.len, 8 * count, "out");
    if (ok)
        for (long long i = 0; i < count; i++)
            ((double *)out.buf)[i] = exponential(((const uint64_t *)words.buf)[i]);
    PyBuffer_Release(&words);
    PyBuffer_Release(&out);
    if (!ok) return NULL;
    Py_RETURN_NONE;
}

/* counters(starts, out, rows, blocks, first): out[r, j] = (high[r], low[r] + first + j), 16 bytes each. */
static PyObject *counters(PyObject *self, PyObject *args)
{
    Py_buffer starts, out;
    long long rows, blocks;
    unsigned long long first;
    if (!PyArg_ParseTuple(args, "y*w*LLK", &starts, &out, &rows, &blocks, &first)) return NULL;
    int ok = rows >= 0 && blocks >= 0 && check(starts.len, 16 * rows, "starts")
        && check(out.len, 16 * rows * blocks, "out");
    if (ok) {
        Py_BEGIN_ALLOW_THREADS
        const uint64_t *start = starts.buf;
        uint64_t *o = out.buf;
        for (long long r = 0; r < rows; r++)
            for (long long j = 0; j < blocks; j++) {
                *o++ = start[2 * r];
                *o++ = start[2 * r + 1] + first + (uint64_t)j;
            }
        Py_END_ALLOW_THREADS
    }
    PyBuffer_Release(&starts);
    PyBuffer_Release(&out);
    if (!ok) {
        if (!PyErr_Occurred()) PyErr_SetString(PyExc_ValueError, "sizes");
        return NULL;
    }
    Py_RETURN_NONE;
}

static PyMethodDef methods[] = {
    {"normals", normals, METH_VARARGS, "Standard normals from words."},
    {"gammas", gammas, METH_VARARGS, "Gamma variates from words."},
    {"exponentials", exponentials, METH_VARARGS, "Exponential variates from words."},
    {"release", release, METH_VARARGS, "Noisy rows from rows and words."},
    {"counters", counters, METH_VARARGS, "Counter blocks of a block cipher."},
    {NULL, NULL, 0, NULL}};

static struct PyModuleDef module = {PyModuleDef_HEAD_INIT, "_kernel", "Compiled noise kernel.", 0, methods};

PyMODINIT_FUNC PyInit__kernel(void) { return PyModule_Create(&module); }
