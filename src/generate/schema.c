#include "generate/schema.h"

#include "base/error.h"
#include "base/json-read.h"
#include "base/slice.h"

#include <string.h>

// What a keyword means for us.
enum meaning {
    ALONE,    // says all about the value
    RESTRICT, // restricts it further, beside `type`
    OTHER,    // says nothing about it, such as "title"
};

// What the value of a keyword is.
enum content {
    NO_SCHEMA,
    SCHEMA,
    SCHEMAS,     // an array of schemas
    ANY_SCHEMAS, // one, or an array
    NAMED,       // an object of schemas
};

static const struct keyword {
    const char * name;
    enum meaning meaning;
    enum content content;
} KEYWORDS[] = {
    { "$ref", ALONE, NO_SCHEMA }, { "const", ALONE, NO_SCHEMA }, { "enum", ALONE, NO_SCHEMA },
    { "anyOf", ALONE, SCHEMAS }, { "oneOf", ALONE, SCHEMAS }, { "allOf", ALONE, SCHEMAS },
    { "properties", RESTRICT, NAMED }, { "patternProperties", RESTRICT, NAMED },
    { "additionalProperties", RESTRICT, SCHEMA }, { "unevaluatedProperties", RESTRICT, SCHEMA },
    { "propertyNames", RESTRICT, SCHEMA }, { "required", RESTRICT, NO_SCHEMA },
    { "minProperties", RESTRICT, NO_SCHEMA }, { "maxProperties", RESTRICT, NO_SCHEMA },
    { "items", RESTRICT, ANY_SCHEMAS }, { "prefixItems", RESTRICT, SCHEMAS },
    { "unevaluatedItems", RESTRICT, SCHEMA }, { "minItems", RESTRICT, NO_SCHEMA },
    { "maxItems", RESTRICT, NO_SCHEMA }, { "pattern", RESTRICT, NO_SCHEMA },
    { "format", RESTRICT, NO_SCHEMA }, { "minLength", RESTRICT, NO_SCHEMA },
    { "maxLength", RESTRICT, NO_SCHEMA }, { "minimum", RESTRICT, NO_SCHEMA },
    { "maximum", RESTRICT, NO_SCHEMA }, { "exclusiveMinimum", RESTRICT, NO_SCHEMA },
    { "exclusiveMaximum", RESTRICT, NO_SCHEMA }, { "multipleOf", RESTRICT, NO_SCHEMA },
    { "$defs", OTHER, NAMED }, { "definitions", OTHER, NAMED },
    { NULL, OTHER, NO_SCHEMA }, // every other one
};

static const struct keyword * find(struct json_value key) {
    const struct keyword * k = KEYWORDS;
    while (k->name != NULL && !json_string_is(key, k->name, strlen(k->name))) {
        k++;
    }
    return k;
}

static bool check(struct json_value schema, struct lrnn_error * err);

// Checks the schemas in the value of a keyword.
static bool check_inside(struct json_value value, enum content content, struct lrnn_error * err) {
    struct json_value key, item;
    bool              ok = true;
    switch (content) {
        case NO_SCHEMA: break;
        case SCHEMA: return check(value, err);
        case ANY_SCHEMAS:
        case SCHEMAS:
            while (ok && value.kind == JSON_ARRAY && json_array_next(&value, &item)) {
                ok = check(item, err);
            }
            return ok && (content == SCHEMAS || check(value, err));
        case NAMED:
            while (ok && value.kind == JSON_OBJECT && json_object_next(&value, &key, &item)) {
                ok = check(item, err);
            }
            break;
    }
    return ok;
}

static bool check(struct json_value schema, struct lrnn_error * err) {
    const char *      alone = NULL, *beside = NULL;
    struct json_value key, item;
    while (schema.kind == JSON_OBJECT && json_object_next(&schema, &key, &item)) {
        const struct keyword * k = find(key);
        if (!check_inside(item, k->content, err)) {
            return false;
        }
        if (k->meaning == ALONE && alone == NULL) {
            alone = k->name;
        } else if (k->meaning != OTHER) {
            beside = k->name;
        }
    }
    return alone == NULL || beside == NULL ||
           error_bad_input(err,
                   "the grammar is not valid: '%s' beside '%s' would be ignored; expected one of "
                   "them in a schema",
                   beside, alone);
}

bool schema_check(const char * text, size_t size, struct lrnn_error * err) {
    struct json_error where = { 0 };
    struct json_value schema = { .data = text, .size = size };
    schema.kind = json_read(text, size, NULL, 0, NULL, &where);
    if (schema.kind == JSON_MISSING) {
        return error_bad_input(err, "the schema is not JSON: %s at byte %zu", where.what, where.at);
    }
    while (schema.kind == JSON_OBJECT && *schema.data != '{') { // white space
        schema.data++;
        schema.size--;
    }
    return check(schema, err);
}
