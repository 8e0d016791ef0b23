// Decides whether a tool call runs at once, waits for an approval or is refused: by the rules
// of the configuration, and by rules that were granted over the API or with an approval.
import { id as makeId } from '../../kernel/ids.ts';
import type { Tool } from '../plugins/index.ts';
import { literalPattern } from './patterns.ts';
import { decide, type Effect, type Permission, type PermissionRule } from './rules.ts';
import { simpleCommands } from './shell-commands.ts';
import type { GrantedRule, NewRule, PermissionStore } from './store.ts';

/** A rule of the configuration; `expiresAt` is a time as its file has it. */
export interface ConfiguredRule {
  tool: string;
  pattern?: string;
  effect: Effect;
  expiresAt?: string;
}

export interface ToolCall {
  tool: Tool;
  input: unknown;
  /** The folder of the session. */
  workspace: string;
}

export interface PermissionDecision {
  effect: Effect;
  /** The explanation for the model when the call is refused. */
  reason: string;
  /** The plugin that failed to report which permissions the call needs; then no rule can allow the call. */
  failedPlugin?: string;
}

export interface GrantRequest {
  /** Null for all sessions. */
  session: { key: string; id: string } | null;
  effect: Effect;
  /** The pattern of the new rule; without it the rule matches exactly this call. */
  pattern?: string | undefined;
  expiresInMs?: number | undefined;
  createdBy: string;
}

export interface Permissions {
  /**
   * The decision for a call in a session; without a matching rule the tool itself
   * decides between allow and ask.
   */
  decide(sessionKey: string, call: ToolCall): Promise<PermissionDecision>;
  /** Adds the rules that decide future calls like this one. */
  grantLike(call: ToolCall, request: GrantRequest): Promise<void>;
  /** Lists granted rules that have not expired; with a session, only its rules and the project's. */
  listGranted(sessionKey?: string): Promise<GrantedRule[]>;
  /** Adds a rule, or sets the expiry of the same existing rule; undefined when its session is gone. */
  grant(rule: Omit<NewRule, 'ruleId' | 'agentId'>): Promise<GrantedRule | undefined>;
  /** Removes a rule; returns whether it existed. */
  revoke(ruleId: string): Promise<boolean>;
  /** Lists the rules of the configuration that have not expired. */
  listConfigured(): (ConfiguredRule & { ruleId: string })[];
}

export interface PermissionsOptions {
  agentId: string;
  store: PermissionStore;
  configuredRules: readonly ConfiguredRule[];
  now(): Date;
}

export function createPermissions({ agentId, store, configuredRules, now }: PermissionsOptions): Permissions {
  const rulesWithIds = configuredRules.map((rule, index) => ({ ...rule, ruleId: `config-${index + 1}` }));
  const unexpiredRules = () =>
    rulesWithIds.filter(({ expiresAt }) => expiresAt === undefined || new Date(expiresAt) > now());
  return {
    listConfigured: unexpiredRules,
    listGranted: (sessionKey) => store.list(agentId, sessionKey),
    async grant(rule) {
      const ruleId = await store.upsert({ ...rule, ruleId: makeId('prm'), agentId });
      return (await store.list(agentId)).find((entry) => entry.ruleId === ruleId);
    },
    revoke: (ruleId) => store.remove(agentId, ruleId),
    async decide(sessionKey, call) {
      const { tool, input } = call;
      const grantedRules: GrantedRule[] = await store.list(agentId, sessionKey);
      const rules: PermissionRule[] = [
        ...unexpiredRules().map((rule) => ({ ...rule, pattern: rule.pattern ?? null })),
        ...grantedRules,
      ];
      const needs = await permissionsOf(call);
      const verdict = decide(needs ?? [{ tool: actionOf(tool) }], rules);
      if (needs === undefined && verdict.effect !== 'deny')
        return { effect: 'ask', reason: '', failedPlugin: tool.plugin };
      if (verdict.effect !== 'default')
        return { effect: verdict.effect, reason: explainRefusal(verdict.rule) };
      return {
        effect: tool.needsApproval(input, { workspace: call.workspace }) ? 'ask' : 'allow',
        reason: '',
      };
    },
    async grantLike(call, { session, effect, pattern, expiresInMs = null, createdBy }) {
      const rules = rulesLike((await permissionsOf(call)) ?? [], { effect, pattern });
      for (const rule of rules)
        await store.upsert({
          ...rule,
          ruleId: makeId('prm'),
          agentId,
          session,
          effect,
          createdBy,
          expiresInMs,
        });
    },
  };
}

function actionOf({ plugin, action }: Tool): string {
  return `${plugin}.${action}`;
}

async function permissionsOf({ tool, input, workspace }: ToolCall): Promise<Permission[] | undefined> {
  const needs = await tool.permissions(input, { workspace });
  const action = actionOf(tool);
  return needs?.map(({ right, isIncluded = false, ...need }) => ({
    ...need,
    tool: right === undefined ? action : `${tool.plugin}.${right}`,
    isFurther: right !== undefined,
    ...(isIncluded ? { includedIn: action } : {}),
  }));
}

// No pattern can match a command line that cannot be parsed, so no rule is granted for it and the next call
// needs an approval again.
function rulesLike(
  permissions: readonly Permission[],
  { effect, pattern }: Pick<GrantRequest, 'effect' | 'pattern'>,
): { tool: string; pattern: string | null }[] {
  const needs = permissions.filter(({ includedIn }) => includedIn === undefined);
  // A rule for a command and another for its folder or standard input would also allow other combinations of
  // them, so such a call gets no rule.
  if (effect === 'allow' && pattern === undefined && needs.length < permissions.length) return [];
  return needs.flatMap(({ tool, command, path }): { tool: string; pattern: string | null }[] => {
    if (command === undefined && path === undefined) return [{ tool, pattern: null }];
    if (pattern !== undefined) return [{ tool, pattern }];
    const texts = path === undefined ? simpleCommands(command ?? '') : [path];
    return (texts ?? []).map((text) => ({ tool, pattern: literalPattern(text) }));
  });
}

function explainRefusal({ tool, pattern }: PermissionRule): string {
  const label = pattern === null ? tool : `${tool}: ${pattern}`;
  return `The permission rule ${JSON.stringify(label)} of this agent refuses the call.`;
}
