// Turns the actions of a plugin into tools: names that every provider accepts, compiled schemas,
// the approval policy.
import { compileSchema, type JsonSchema, type SchemaCheck } from '../../kernel/contract/schema.ts';
import type { ProblemDetail } from '../../kernel/problem.ts';
import type { Action, Plugin, ToolPermission } from './definition/plugin.ts';

/** One action from the view of the model. */
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
  /** Whether a person has to approve a call with this input. */
  needsApproval(input: unknown): boolean;
  /** The commands or paths that permission rules match. */
  permissions(input: unknown): Promise<readonly ToolPermission[]>;
  /** Of the tool's plugin; read before each call. */
  availability(): Promise<PluginAvailability>;
}

export interface PluginAvailability {
  enabled: boolean;
  available: boolean;
  reasons: string[];
}

// Some providers accept at most 64 characters of [A-Za-z0-9_-] for a tool; an underscore joins the
// two names.
const nameShape = /^[a-z][a-z0-9-]{0,30}$/;
/**
 * The name of an action added at run time is derived from a foreign one, so it may be as long as a
 * tool's name allows.
 */
export const offeredNameShape = /^[a-z][a-z0-9-]*$/;
const maxToolNameLength = 64;

/** By the action's name. Throws for an invalid name or schema. */
export function toolsOf(
  actions: Readonly<Record<string, Action>>,
  context: Pick<Tool, 'plugin' | 'settings' | 'availability'> & { nameShape?: RegExp },
): Map<string, Tool> {
  const { plugin, settings, availability } = context;
  const tools = new Map<string, Tool>();
  for (const [action, definition] of Object.entries(actions)) {
    requireName(`action of the plugin "${plugin}"`, action, context.nameShape);
    const name = `${plugin}_${action}`;
    if (name.length > maxToolNameLength)
      throw new Error(`The tool "${name}" has a name of more than ${maxToolNameLength} characters.`);
    tools.set(action, {
      name,
      plugin,
      action,
      definition,
      settings,
      check: definition.check ?? compile(`input schema of "${name}"`, definition.input, { isObject: true }),
      ...(definition.output === undefined
        ? {}
        : {
            checkOutput: compile(`output schema of "${name}"`, definition.output, { isObject: false }),
          }),
      needsApproval: (input) => needsApproval(definition, input, settings),
      permissions: (input) => permissionsOf(definition, input),
      availability,
    });
  }
  return tools;
}

/** Throws when the name is invalid for a plugin or an action. */
export function requireName(owner: string, name: string, shape = nameShape): void {
  if (typeof name === 'string' && shape.test(name)) return;
  throw new Error(
    `The ${owner} has the name ${JSON.stringify(name)}; a name is a lower-case letter, then lower-case letters, digits and hyphens, 31 at most.`,
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
      `The settings of the plugin "${plugin.name}" do not fit: ${listErrors(result.details, 'they')}.`,
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
  settings: Readonly<Record<string, unknown>>,
): boolean {
  if (typeof policy === 'boolean') return policy;
  try {
    const answer: unknown = policy(structuredClone(input) as never, settings);
    return answer !== false;
  } catch {
    return true;
  }
}

async function permissionsOf(definition: Action, input: unknown): Promise<readonly ToolPermission[]> {
  return (await definition.permissions?.(structuredClone(input) as never)) ?? [{}];
}

function compile(name: string, schema: JsonSchema, { isObject }: { isObject: boolean }): SchemaCheck {
  if (typeof schema !== 'object' || schema === null || (isObject && schema['type'] !== 'object')) {
    throw new Error(`The ${name} is not that of an object.`);
  }
  try {
    return compileSchema(schema);
  } catch (cause) {
    throw new Error(`The ${name} is not a JSON Schema.`, { cause });
  }
}
