// The error codes of each operation: how the generator combines a path file's list with its
// families, and what it refuses.
import { describe, expect, expectTypeOf, test } from 'vitest';
import type { GenerateTextErrorCode, OperationErrorCodes } from '@townhall/gateway';
import agentBundle from '../../src/contract/agent/bundle.json' with { type: 'json' };
import gatewayBundle from '../../src/contract/gateway/bundle.json' with { type: 'json' };
import { type Document, type Operation, operationsOf } from '../../scripts/generate/document.ts';
import { completeErrorCodes, writeErrorCodes } from '../../scripts/generate/error-codes.ts';

const agent = agentBundle as unknown as Document;
const gateway = gatewayBundle as unknown as Document;
const problem = { content: { 'application/json': {} } };
const statuses = {
  invalid_request: [400],
  invalid_token: [401],
  job_not_found: [404],
  internal_error: [500],
};

function codesOf(document: Document, operationId: string): string[] {
  return operationsOf(document).find(({ id }) => id === operationId)?.operation['x-error-codes'] ?? [];
}

function documentWith(operation: Partial<Operation>): Document {
  return {
    paths: {
      '/v1/jobs': {
        get: {
          operationId: 'jobs.get',
          security: [{ userToken: [] }],
          responses: { '400': problem, '401': problem, '404': problem, '500': problem },
          ...operation,
        },
      },
    },
    components: {
      schemas: {
        ProblemCode: {
          enum: Object.keys(statuses),
          'x-codes': Object.fromEntries(Object.entries(statuses).map(([code, status]) => [code, { status }])),
        },
      },
    },
  } as unknown as Document;
}

function codesWithFamilies(operation: Partial<Operation>): string[] {
  const document = documentWith(operation);
  completeErrorCodes(document, { name: 'gateway' });
  return codesOf(document, 'jobs.get');
}

describe('the error codes of an operation', () => {
  test('are its own codes and the codes of its families', () => {
    expect(codesWithFamilies({ 'x-error-codes': ['job_not_found'] })).toEqual([
      'invalid_request',
      'invalid_token',
      'job_not_found',
      'internal_error',
    ]);
  });

  test.each<[string, Partial<Operation>, string]>([
    [
      'an unknown code',
      { 'x-error-codes': ['job_not_found', 'jobs_lost'] },
      'jobs.get lists the unknown code jobs_lost',
    ],
    [
      'a code of a family',
      { 'x-error-codes': ['job_not_found', 'invalid_token'] },
      'jobs.get lists invalid_token, which every such operation has',
    ],
    [
      'a code without a declared status',
      { 'x-error-codes': ['job_not_found'], responses: { '400': problem, '500': problem } },
      'jobs.get lists job_not_found and declares none of its statuses',
    ],
  ])('may not include %s', (_name, operation, message) => {
    expect(() => codesWithFamilies(operation)).toThrow(message);
  });

  test('cover every declared error status', () => {
    expect(() => codesWithFamilies({})).toThrow('jobs.get declares 404 and lists no code of it');
  });

  test('differ between model calls, bodies and plain reads', () => {
    expect(codesOf(gateway, 'ai.generateText')).toEqual(
      expect.arrayContaining([
        'insufficient_credits',
        'idempotency_key_reused',
        'unsupported_reasoning_effort',
      ]),
    );
    expect(codesOf(gateway, 'ai.listModels')).not.toContain('invalid_json');
    expect(codesOf(gateway, 'directory.getHealth')).not.toContain('rate_limited');
    expect(codesOf(agent, 'sessions.execute')).toContain('step_limit_reached');
    expect(codesOf(agent, 'status.getStatus')).not.toContain('forbidden_for_identity');
  });

  test('become one named union type for each operation', () => {
    const text = writeErrorCodes(gateway);
    expect(text).toMatch(/export type GenerateTextErrorCode =\n {2}\| 'invalid_request'/);
    const names = Array.from(text.matchAll(/^export type (\w+)/gm), ([, name]) => name);
    expect(new Set(names).size).toBe(operationsOf(gateway).length);
    expectTypeOf<OperationErrorCodes['ai.generateText']>().toEqualTypeOf<GenerateTextErrorCode>();
  });
});
