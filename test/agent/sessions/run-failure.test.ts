// The answer to a caller that waited for a run which another process executed.
import { describe, expect, test } from 'vitest';
import { runFailure } from '../../../src/agent/sessions/runs/run-failure.ts';

describe('the failure of a run in another process', () => {
  test.each([
    ['insufficient_credits', 402],
    ['model_not_found', 404],
    ['upstream_refused', 422],
    ['step_limit_reached', 422],
    ['workspace_unavailable', 409],
    ['rate_limited', 429],
    ['upstream_failed', 502],
    ['provider_credentials', 502],
    ['not_ready', 503],
    ['upstream_timeout', 504],
    ['internal_error', 500],
  ])('has the code %s with the status %i', (code, status) => {
    const problem = runFailure({ status: 'failed', error: { code, message: 'It failed.' } }, 'run_1');
    expect(problem).toMatchObject({ code, status, message: 'It failed. (run_1)' });
  });

  test('names no code that is not in the contract', () => {
    const run = { status: 'failed' as const, error: { code: 'made_up', message: 'It failed.' } };
    expect(runFailure(run, 'run_1')).toMatchObject({ code: 'internal_error', status: 500 });
  });

  test('is an internal error when the run was deleted', () => {
    expect(runFailure(null, 'run_1')).toMatchObject({ code: 'internal_error', status: 500 });
  });

  test('distinguishes a cancelled run from an interrupted one', () => {
    expect(runFailure({ status: 'cancelled', error: null }, 'run_1')).toMatchObject({
      code: 'run_cancelled',
      status: 409,
    });
    expect(runFailure({ status: 'interrupted', error: null }, 'run_1')).toMatchObject({
      code: 'run_interrupted',
      status: 503,
    });
  });
});
