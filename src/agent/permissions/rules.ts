// Decides one call by the rules: deny wins over ask, ask over allow. A call may need
// several permissions, such as each command of a command line; the strictest verdict counts.
import { isLiteral, matchesCommand, matchesPath, mayMatchBelow } from './patterns.ts';
import { simpleCommands } from './shell-commands.ts';

export type Effect = 'allow' | 'ask' | 'deny';

export interface PermissionRule {
  /** `plugin` or `plugin.action`; `*` stands for any characters. */
  tool: string;
  /** Matches the command or the path of a call, whichever the tool has; null matches every call. */
  pattern: string | null;
  effect: Effect;
}

/** One permission that a call needs. */
export interface Permission {
  /** `plugin.action`, or `plugin.` and the name of a further right such as `network`. */
  tool: string;
  /** Whether it is a further right, which only a rule that names it allows. */
  isFurther?: boolean;
  /** The action whose rules without a pattern include this further right. */
  includedIn?: string;
  /** A command line of sh. */
  command?: string;
  /** Relative to the workspace. */
  path?: string;
  /** Whether the call also reads everything below the path. */
  includesBelow?: boolean;
  /** Whether only a rule without a wildcard in its pattern may allow it. */
  isProtected?: boolean;
}

export type Verdict = { effect: Effect; rule: PermissionRule } | { effect: 'default' };

/** The verdict of the rules on a call; `default` when some part of the call matches no rule. */
export function decide(permissions: readonly Permission[], rules: readonly PermissionRule[]): Verdict {
  const verdicts = permissions.flatMap((permission) =>
    split(permission).map((part) => decidePart(part, rules)),
  );
  return (
    verdicts.find(({ effect }) => effect === 'deny') ??
    verdicts.find(({ effect }) => effect === 'ask') ??
    verdicts.find(({ effect }) => effect === 'default') ??
    verdicts[0] ?? { effect: 'default' }
  );
}

type Part = Permission & { isUnparsable?: boolean };

// Each simple command needs a rule of its own. Patterns never match a command line that cannot be parsed.
function split(permission: Permission): Part[] {
  if (permission.command === undefined) return [permission];
  const commands = simpleCommands(permission.command);
  return commands === undefined
    ? [{ ...permission, isUnparsable: true }]
    : commands.map((command) => ({ ...permission, command }));
}

function decidePart(part: Part, rules: readonly PermissionRule[]): Verdict {
  const candidates = rules.filter((rule) => concerns(rule, part));
  const find = (effect: Effect): PermissionRule | undefined =>
    candidates.find((rule) => rule.effect === effect && matches(rule, part));
  const denyRule = find('deny');
  if (denyRule !== undefined) return { effect: 'deny', rule: denyRule };
  const askRule = find('ask') ?? candidates.find((rule) => isUnclear(rule, part));
  if (askRule !== undefined) return { effect: 'ask', rule: askRule };
  const allowRule = find('allow');
  return allowRule === undefined ? { effect: 'default' } : { effect: 'allow', rule: allowRule };
}

// A rule against some commands cannot tell whether an unparsable command line contains one of them, and a
// rule against some paths may concern a path below the folder that the call reads.
function isUnclear({ pattern, effect }: PermissionRule, part: Part): boolean {
  if (pattern === null || effect === 'allow') return false;
  if (part.isUnparsable === true) return true;
  return part.includesBelow === true && part.path !== undefined && mayMatchBelow(pattern, part.path);
}

function concerns({ tool, pattern }: PermissionRule, part: Part): boolean {
  if (matchesTool(tool, part)) return true;
  return pattern === null && part.includedIn !== undefined && matchesTool(tool, { tool: part.includedIn });
}

/** `shell` covers `shell.run`, but no further right: `shell.network` needs a rule that names it. */
function matchesTool(
  pattern: string,
  { tool, isFurther = false }: Pick<Part, 'tool' | 'isFurther'>,
): boolean {
  if (pattern.includes('.')) return matchesCommand(pattern, tool);
  return !isFurther && matchesCommand(`${pattern}.*`, tool);
}

function matches({ pattern, effect }: PermissionRule, part: Part): boolean {
  const allows = effect === 'allow';
  if (allows && part.isProtected === true && (pattern === null || !isLiteral(pattern))) return false;
  if (pattern === null) return true;
  if (part.isUnparsable === true) return false;
  if (part.command !== undefined) return matchesCommand(pattern, part.command);
  return part.path !== undefined && matchesPath(pattern, part.path, { isLoose: !allows });
}
