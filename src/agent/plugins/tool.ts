// Turns the actions of a plugin into tools: names that every provider accepts, compiled schemas,
// the approval policy.
import { withTimeout } from '../../kernel/async.ts';
import type { Clock } from '../../kernel/clock.ts';
import { compileSchema, type JsonSchema, type SchemaCheck } from '../../kernel/contract/schema.ts';
import { isRecord } from '../../kernel/json-value.ts';
import type { Log } from '../../kernel/log.ts';
import type { ProblemDetail } from '../../kernel/problem.ts';
import type { Action, PermissionContext, Plugin, ToolPermission } from './definition/plugin.ts';

/** One action as the model sees and calls it. */
export interface Tool {
  /** `<plugin>_<action>`, unique in the registry. */
  name: string;
  plugin: string;
  action: string;
  definition: Action;
  settings: Readonly<Record<string, unknown>>;
  check: SchemaCheck;
  /** Checks the result; absent without an output schema. */
  checkOutput?: SchemaCheck;
  /** Whether a person has to approve a call with this input in a workspace. */
  needsApproval(input: unknown, context: PermissionContext): boolean;
  /**
   * The commands or paths that permission rules match, never empty; undefined when the plugin's own
   * function failed.
   */
  permissions(input: unknown, context: PermissionContext): Promise<readonly ToolPermission[] | undefined>;
  /** The availability of the tool's plugin; read before each call. */
  availability(): Promise<PluginAvailability>;
}

export interface PluginAvailability {
  enabled: boolean;
  available: boolean;
  reasons: string[];
}

/** The context that the tools of one plugin share. */
export interface ToolContext extends Pick<Tool, 'plugin' | 'settings' | 'availability'> {
  /** The deadline of a plugin's function `permissions`. */
  permissionsMs: number;
  clock: Clock;
  log: Log;
}

// Some providers accept at most 64 characters of [A-Za-z0-9_-] in a tool's name, which joins the names
// of plugin and action with an underscore.
const nameShape = /^[a-z][a-z0-9-]{0,30}$/;
/**
 * An action offered at run time is named after a third party's tool, so its length has no limit of its
 * own: only the whole name of the tool does.
 */
export const offeredNameShape = /^[a-z][a-z0-9-]*$/;
const maxToolNameLength = 64;

/** The tools of a plugin by the name of their action. Throws for an invalid name or schema. */
export function toolsOf(
  actions: Readonly<Record<string, Action>>,
  context: ToolContext & { nameShape?: RegExp },
): Map<string, Tool> {
  const { plugin, settings, availability, log } = context;
  const tools = new Map<string, Tool>();
  for (const [action, definition] of Object.entries(actions)) {
    requireName(`action of the plugin "${plugin}"`, action, context.nameShape);
    const name = `${plugin}_${action}`;
    if (name.length > maxToolNameLength)
      throw new Error(`The tool "${name}" has a name of more than ${maxToolNameLength} characters.`);
    const tool: Tool = {
      name,
      plugin,
      action,
      definition,
      settings,
      check: containCheck(
        definition.check ?? compile(`input schema of "${name}"`, definition.input, { isObject: true }),
        log,
      ),
      needsApproval: (input, call) => needsApproval(definition, input, { ...call, settings }),
      permissions: (input, call) => permissionsOf(definition, input, { ...context, ...call }),
      availability,
    };
    if (definition.output !== undefined)
      tool.checkOutput = compile(`output schema of "${name}"`, definition.output, { isObject: false });
    tools.set(action, tool);
  }
  return tools;
}

/** Throws when the name is invalid for a plugin or an action. */
export function requireName(owner: string, name: string, shape = nameShape): void {
  if (typeof name === 'string' && shape.test(name)) return;
  throw new Error(
    `The ${owner} has the name ${JSON.stringify(name)}; a name is a lower-case letter, then ` +
      `lower-case letters, digits and hyphens${shape === nameShape ? ', 31 at most' : ''}.`,
  );
}

/**
 * Throws when the settings do not match the plugin's settings schema; a plugin without one has no
 * settings.
 */
export function requireSettings(plugin: Plugin, settings: Readonly<Record<string, unknown>>): void {
  if (plugin.settings === undefined) {
    if (Object.keys(settings).length > 0) throw new Error(`The plugin "${plugin.name}" takes no settings.`);
    return;
  }
  const check = compile(`settings schema of "${plugin.name}"`, plugin.settings, { isObject: true });
  const result = check(settings);
  if (!result.ok)
    throw new Error(
      `The settings of the plugin "${plugin.name}" are invalid: ${listErrors(result.details, 'they')}.`,
    );
}

/** Validation errors as one text; `root` names the value itself. */
export function listErrors(details: readonly ProblemDetail[], root: string): string {
  return details.map(({ path, message }) => `${path === '' ? root : path} ${message}`).join('; ');
}

// If the function throws, require approval: failing open would run an unreviewed call.
function needsApproval(
  { needsApproval: policy = false }: Action,
  input: unknown,
  { settings, workspace }: PermissionContext & Pick<ToolContext, 'settings'>,
): boolean {
  if (typeof policy === 'boolean') return policy;
  try {
    const answer: unknown = policy(structuredClone(input) as never, settings, { workspace });
    return answer !== false;
  } catch {
    return true;
  }
}

// Input that could not be checked must not reach the action.
function containCheck(check: SchemaCheck, log: Log): SchemaCheck {
  return (input) => {
    try {
      return check(input);
    } catch (error) {
      log.warn({ err: error }, 'the check of an input failed');
      return { ok: false, details: [{ path: '', message: 'could not be checked' }] };
    }
  };
}

/** Undefined when the plugin's function throws, returns something invalid or misses its deadline. */
async function permissionsOf(
  { permissions }: Action,
  input: unknown,
  { permissionsMs, clock, log, workspace }: ToolContext & PermissionContext,
): Promise<readonly ToolPermission[] | undefined> {
  if (permissions === undefined) return [{}];
  try {
    const needs: unknown = await withTimeout(
      async () => permissions(structuredClone(input) as never, { workspace }),
      {
        ms: permissionsMs,
        clock,
      },
    );
    if (!Array.isArray(needs) || !needs.every(isToolPermission))
      throw new Error('The function `permissions` of an action returned no list of permissions.');
    // Without a permission for the action itself, no rule that names the action would apply.
    return needs.some(({ right }) => right === undefined) ? needs : [{}, ...needs];
  } catch (error) {
    log.warn({ err: error }, 'the permissions that a call needs could not be determined');
    return undefined;
  }
}

const permissionMembers: Readonly<Record<keyof ToolPermission, 'string' | 'boolean'>> = {
  right: 'string',
  isIncluded: 'boolean',
  command: 'string',
  path: 'string',
  includesBelow: 'boolean',
  isProtected: 'boolean',
};

function isToolPermission(need: unknown): need is ToolPermission {
  if (!isRecord(need)) return false;
  return Object.entries(permissionMembers).every(
    ([name, type]) => need[name] === undefined || typeof need[name] === type,
  );
}

function compile(name: string, schema: JsonSchema, { isObject }: { isObject: boolean }): SchemaCheck {
  if (typeof schema !== 'object' || schema === null) throw new Error(`The ${name} is not an object.`);
  if (isObject && schema['type'] !== 'object')
    throw new Error(`The ${name} must have "type": "object" at the top.`);
  try {
    return compileSchema(schema);
  } catch (cause) {
    throw new Error(`The ${name} is not a JSON Schema.`, { cause });
  }
}
