// Confines machine credentials to their own Bureau.
import { Problem } from '../kernel/problem.ts';
import type { Identity } from './identity.ts';

type AnyCall = { identity: Identity; body: unknown; query: unknown };

/**
 * Wraps every handler: a machine credential that names another Bureau as `bureau_id` in the body or query
 * gets 404, the same answer as for a Bureau that does not exist. A request can also name a record of another
 * Bureau by the record's ID; the handler that looks the record up answers 404 then.
 */
export function restrictToOwnBureau<Handlers extends Record<string, (call: never) => Promise<unknown>>>(
  handlers: Handlers,
): Handlers {
  const entries = Object.entries(handlers).map(([operationId, handler]) => [
    operationId,
    (call: AnyCall) => {
      const ownId = call.identity.kind === 'admin' ? call.identity.bureauId : undefined;
      if (
        ownId !== undefined &&
        [call.body, call.query].some((members) => namesOtherBureau(members, ownId))
      ) {
        throw new Problem('not_found', 'bureau_not_found', 'There is no such Bureau.', {
          param: 'bureau_id',
        });
      }
      return handler(call as never);
    },
  ]);
  return Object.fromEntries(entries) as Handlers;
}

function namesOtherBureau(members: unknown, ownId: string): boolean {
  const bureauId =
    typeof members === 'object' && members !== null && 'bureau_id' in members ? members.bureau_id : undefined;
  return bureauId !== undefined && bureauId !== ownId;
}
