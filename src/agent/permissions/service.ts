// The routes of permissions: list, create, remove.
import type { Permission as PermissionBody } from '../../contract/agent/types.gen.ts';
import { Problem } from '../../kernel/problem.ts';
import type { Service } from '../service.ts';
import type { Permissions } from './permissions.ts';
import type { GrantedRule } from './store.ts';

export interface PermissionServiceOptions {
  permissions: Permissions;
  /** Throws 404 when there is no session with this id. */
  sessionKeyOf(sessionId: string): Promise<string>;
}

export function permissionService({
  permissions,
  sessionKeyOf,
}: PermissionServiceOptions): Service<'permissions'> {
  return {
    name: 'permissions',
    handlers: {
      'permissions.list': async ({ query: { sessionId } }) => {
        const key = sessionId === undefined ? undefined : await sessionKeyOf(sessionId);
        const grantedRules = await permissions.listGranted(key);
        return {
          status: 200,
          body: { items: [...configuredRules(permissions), ...grantedRules.map(toPermission)] },
        };
      },

      'permissions.create': async ({ body, identity }) => {
        const { tool, pattern = null, effect, sessionId, expiresInMs = null } = body;
        const session =
          sessionId === undefined ? null : { id: sessionId, key: await sessionKeyOf(sessionId) };
        const createdBy = identity.tokenId;
        const rule = await permissions.grant({ session, tool, pattern, effect, createdBy, expiresInMs });
        if (rule === undefined)
          throw new Problem('not_found', 'session_not_found', 'The session was deleted during the call.', {
            param: 'sessionId',
          });
        return { status: 201, body: toPermission(rule) };
      },

      'permissions.remove': async ({ path: { permissionId } }) => {
        if (permissions.listConfigured().some(({ ruleId }) => ruleId === permissionId))
          throw new Problem(
            'conflict',
            'permission_configured',
            'The rule is part of the configuration; change the file of --plugin-config to remove it.',
            { param: 'permissionId' },
          );
        if (!(await permissions.revoke(permissionId)))
          throw new Problem('not_found', 'permission_not_found', 'There is no permission with this id.', {
            param: 'permissionId',
          });
        return { status: 204 };
      },
    },
  };
}

function configuredRules(permissions: Permissions): PermissionBody[] {
  return permissions.listConfigured().map(({ ruleId, tool, pattern = null, effect, expiresAt }) => ({
    permissionId: ruleId,
    tool,
    pattern,
    effect,
    scope: 'project',
    sessionId: null,
    source: 'config',
    createdBy: null,
    createdAt: null,
    expiresAt: expiresAt === undefined ? null : new Date(expiresAt).toISOString(),
  }));
}

function toPermission({ ruleId, sessionId, ...rule }: GrantedRule): PermissionBody {
  return {
    permissionId: ruleId,
    ...rule,
    scope: sessionId === null ? 'project' : 'session',
    sessionId,
    source: 'grant',
  };
}
