// The explanations of values that match none of several forms.
import { Ajv2020 } from 'ajv/dist/2020.js';
import { describe, expect, test } from 'vitest';
import { invalidRequestProblem, type SchemaError } from '../../../src/kernel/contract/validation-errors.ts';

const ajv = new Ajv2020({ strict: false, allErrors: true, verbose: true });

function check(schema: unknown, value: unknown): SchemaError[] {
  const validate = ajv.compile(schema as object);
  return validate(value) ? [] : [...((validate.errors ?? []) as SchemaError[])];
}

function detailsOf(schema: object, value: unknown) {
  const errors = check({ properties: { requestBody: schema } }, { requestBody: value });
  const tools = { resolve: (part: unknown) => part as Record<string, unknown>, check };
  return invalidRequestProblem(errors, tools).details;
}

const form = (members: Record<string, object>, ...required: string[]) => ({
  type: 'object',
  required,
  properties: members,
  additionalProperties: false,
});

describe('a value that lacks one member', () => {
  test('is explained by that member when all forms require it', () => {
    const forms = { anyOf: [form({ a: { type: 'string' } }, 'a'), form({ a: { type: 'number' } }, 'a')] };
    expect(detailsOf(forms, {})).toEqual([{ path: 'a', message: 'is required' }]);
  });

  test('is explained by each member once that forms require', () => {
    const forms = { anyOf: ['a', 'b', 'b', 'c'].map((name) => form({ [name]: {} }, name)) };
    expect(detailsOf(forms, {})).toEqual([{ path: 'a', message: 'is required, or `b` or `c` in its place' }]);
  });
});

test('two members of different forms exclude each other', () => {
  const forms = { anyOf: [form({ a: {} }), form({ b: {} })] };
  expect(detailsOf(forms, { a: 1, b: 2 })).toEqual([{ path: 'b', message: 'cannot be combined with `a`' }]);
});

test('a failed condition is explained by its consequence', () => {
  const schema = { if: { required: ['a'] }, then: { required: ['b'] } };
  expect(detailsOf(schema, { a: 1 })).toEqual([{ path: 'b', message: 'is required' }]);
});
