// The callers of fuzzed requests, and the document's promises to each of them.
import type { Sql } from '../../src/kernel/data/database.ts';
import {
  type Caller,
  callers,
  credentialsOf,
  expectedOf,
  type Expected,
} from '../contract/identity-table.ts';
import type { FuzzedOperation } from './document.ts';

export interface FuzzedCaller {
  name: string;
  expected: (operation: FuzzedOperation) => Expected;
  /** The headers of a new credential. */
  credential: () => Promise<Record<string, string>>;
}

function isOpen({ security }: FuzzedOperation): boolean {
  return security.length === 0 || security.some((requirement) => Object.keys(requirement).length === 0);
}

/** All callers of the gateway. */
export function gatewayCallers(sql: Sql): FuzzedCaller[] {
  return callers.map((caller: Caller) => ({
    name: caller,
    expected: (operation) =>
      expectedOf(
        {
          isOpen: isOpen(operation),
          schemes: operation.security.flatMap((requirement) => Object.keys(requirement)),
          ignoresCredential: operation.ignoresCredential,
        },
        caller,
      ),
    // New for each request, as some operations revoke the credential of their call.
    credential: () => credentialsOf(sql, caller),
  }));
}

export function agentCallers(token: string): FuzzedCaller[] {
  const refusal = (operation: FuzzedOperation, code: string): Expected =>
    isOpen(operation) || operation.ignoresCredential ? 'admitted' : { status: 401, code };
  return [
    {
      name: 'agent',
      expected: () => 'admitted',
      credential: async () => ({ authorization: `Bearer ${token}` }),
    },
    {
      name: 'none',
      expected: (operation) => refusal(operation, 'authentication_required'),
      credential: async () => ({}),
    },
    {
      name: 'garbage',
      expected: (operation) => refusal(operation, 'invalid_token'),
      credential: async () => ({ authorization: 'Bearer nonsense' }),
    },
  ];
}
