// How the agent classifies refusals of model calls.
import { describe, expect, test } from 'vitest';
import { isUnsupportedInput } from '../../../src/agent/sessions/model-loop/model-problem.ts';
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
