import { describe, expect, test } from 'vitest';
import {
  asProblem,
  isPermanent,
  Problem,
  type ProblemKind,
  renderProblem,
} from '../../src/kernel/problem.ts';

describe('problem', () => {
  test('each kind has its status and type from the table', () => {
    const table: [ProblemKind, number, string][] = [
      ['bad_request', 400, 'invalid_request_error'],
      ['unauthenticated', 401, 'authentication_error'],
      ['insufficient_credits', 402, 'insufficient_credits'],
      ['forbidden', 403, 'permission_error'],
      ['not_found', 404, 'invalid_request_error'],
      ['method_not_allowed', 405, 'invalid_request_error'],
      ['conflict', 409, 'invalid_request_error'],
      ['gone', 410, 'invalid_request_error'],
      ['too_large', 413, 'invalid_request_error'],
      ['unsupported_media', 415, 'invalid_request_error'],
      ['impossible', 422, 'invalid_request_error'],
      ['rate_limited', 429, 'rate_limit_error'],
      ['internal', 500, 'server_error'],
      ['upstream_failed', 502, 'upstream_error'],
      ['unavailable', 503, 'server_error'],
      ['upstream_timeout', 504, 'upstream_error'],
    ];
    for (const [kind, status, type] of table) {
      expect(new Problem(kind, 'invalid_request', 'x')).toMatchObject({ status, type });
    }
  });

  test('a body has exactly the members of the contract', () => {
    const bareProblem = new Problem('not_found', 'route_not_found', 'Nothing here.', {
      details: [],
      cause: new Error('inside'),
    });
    expect(renderProblem(bareProblem, 'req_1')).toEqual({
      error: {
        type: 'invalid_request_error',
        code: 'route_not_found',
        message: 'Nothing here.',
        param: null,
        request_id: 'req_1',
      },
    });
  });

  test('a body names the invalid members', () => {
    const detailedProblem = new Problem('bad_request', 'invalid_request', 'No.', {
      param: 'a',
      details: [{ path: 'a', message: 'is required' }],
    });
    expect(renderProblem(detailedProblem, 'req_2').error).toMatchObject({
      param: 'a',
      details: [{ path: 'a', message: 'is required' }],
    });
  });

  test('an unknown throw becomes an internal error without its cause', () => {
    const cause = new Error('password is hunter2');
    const problem = asProblem(cause);
    expect(problem).toMatchObject({ status: 500, code: 'internal_error', cause });
    expect(JSON.stringify(renderProblem(problem, 'req_1'))).not.toContain('hunter2');
  });

  test('asProblem returns a Problem unchanged', () => {
    const loginProblem = new Problem('gone', 'login_spent', 'Spent.');
    expect(asProblem(loginProblem)).toBe(loginProblem);
  });

  test('a transient error is not permanent', () => {
    expect(isPermanent(new Problem('conflict', 'conflict', 'x'))).toBe(true);
    expect(isPermanent(new Problem('conflict', 'conflict', 'x', { headers: { 'retry-after': '1' } }))).toBe(
      false,
    );
    expect(isPermanent(new Problem('rate_limited', 'rate_limited', 'x'))).toBe(false);
    expect(isPermanent(new Problem('unavailable', 'draining', 'x'))).toBe(false);
  });
});
