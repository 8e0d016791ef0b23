// How the agent classifies refusals of model calls.
import { describe, expect, test } from 'vitest';
import { GatewayError } from '@townhall/gateway';
import { isUnsupportedInput, modelProblem } from '../../../src/agent/sessions/model-loop/model-problem.ts';
import { Problem } from '../../../src/kernel/problem.ts';

describe('isUnsupportedInput', () => {
  test.each([
    ['This model has no vision.', true],
    ['The throughput is not provisioned.', false],
  ])('of a refusal "%s" is %s', (message, isUnsupported) => {
    const refusal = new Problem('impossible', 'upstream_refused', message);
    expect(isUnsupportedInput(refusal)).toBe(isUnsupported);
  });
});

test('the message of a refusal splits no character where it is cut off', () => {
  const message = `${'x'.repeat(499)}😀`;
  const error = new GatewayError({ message, code: 'upstream_refused', status: 400 });
  expect(modelProblem(error).message).toBe(`The model refused the request: ${'x'.repeat(499)}`);
});
