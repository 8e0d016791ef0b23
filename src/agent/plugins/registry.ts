// The plugins of one agent, and their actions as tools by name. It is built once, at start, and refuses there what
// could not be told apart later: two claims on one name, a name that no tool may have, a schema that is none.
import { compileSchema, type SchemaCheck } from '../../kernel/schema.ts';
import type { Action, Plugin } from './plugin.ts';

/** One action as the model knows it. */
export interface Tool {
  /** `<plugin>_<action>`, unique in the registry. */
  name: string;
  plugin: string;
  action: string;
  definition: Action;
  check: SchemaCheck;
}

export interface PluginRegistry {
  plugins: readonly Plugin[];
  /** In a stable order, since providers cache by the order of tools. */
  tools: readonly Tool[];
  /** The tool of that name; names of built-in object members are names like any other. */
  tool(name: string): Tool | undefined;
}

// An underscore joins plugin and action, and some providers take no more than 64 characters of [A-Za-z0-9_-].
const nameShape = /^[a-z][a-z0-9-]{0,30}$/;

export function createRegistry(plugins: readonly Plugin[]): PluginRegistry {
  const names = new Set<string>();
  const tools = new Map<string, Tool>();
  for (const plugin of plugins) {
    requireName('plugin', plugin.name);
    if (names.has(plugin.name)) throw new Error(`Two plugins claim the name "${plugin.name}".`);
    names.add(plugin.name);
    for (const [action, definition] of Object.entries(plugin.actions)) {
      requireName(`action of the plugin "${plugin.name}"`, action);
      const name = `${plugin.name}_${action}`;
      tools.set(name, { name, plugin: plugin.name, action, definition, check: compile(name, definition) });
    }
  }
  return { plugins: [...plugins], tools: [...tools.values()], tool: (name) => tools.get(name) };
}

function requireName(what: string, name: string): void {
  if (nameShape.test(name)) return;
  throw new Error(`The ${what} has the name ${JSON.stringify(name)}; names are lower-case letters, digits and hyphens, 31 at most.`);
}

function compile(name: string, action: Action): SchemaCheck {
  if (action.input['type'] !== 'object') throw new Error(`The input schema of "${name}" is not that of an object.`);
  try {
    return compileSchema(action.input);
  } catch (cause) {
    throw new Error(`The input schema of "${name}" is not a JSON Schema.`, { cause });
  }
}
