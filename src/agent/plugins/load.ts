// Loads plugins from files named by the operator, once at the start and never on request: only the
// operator may give the agent code to run.
import { stat } from 'node:fs/promises';
import { resolve } from 'node:path';
import { describeLoadError, importFile, resolveTownhall } from '../../kernel/operator-code.ts';
import { SettingError } from '../../kernel/settings.ts';
import type { Containment, PluginOwner } from './containment.ts';
import type { Plugin } from './definition/plugin.ts';

/**
 * The `plugin` or the default export of each file, in this order. A file may import `definePlugin`
 * from `townhall` from any folder. The returned owner contains the plugin's code from its first
 * line on. Throws a SettingError with the file's name.
 */
export async function loadPlugins(
  paths: readonly string[],
  containment: Containment,
): Promise<{ plugin: Plugin; owner: PluginOwner }[]> {
  const plugins: { plugin: Plugin; owner: PluginOwner }[] = [];
  if (paths.length === 0) return plugins;
  // A plugin file may be outside of any node_modules that contains `townhall`.
  const resolution = resolveTownhall(() => true);
  try {
    for (const path of paths) {
      const owner = containment.owner(path);
      const plugin = await owner.run(() => loadPlugin(resolve(path)));
      owner.name = plugin.name;
      plugins.push({ plugin, owner });
    }
  } finally {
    resolution.deregister();
  }
  return plugins;
}

async function loadPlugin(path: string): Promise<Plugin> {
  const isFile = await stat(path).then(
    (stats) => stats.isFile(),
    () => false,
  );
  if (!isFile) throw new SettingError(`--plugin: the file ${path} does not exist.`);
  let module: Record<string, unknown>;
  try {
    module = await importFile(path);
  } catch (cause) {
    throw new SettingError(`--plugin: ${path} cannot be loaded: ${describeLoadError(cause, path)}`);
  }
  const plugin = module['plugin'] ?? module['default'];
  if (typeof plugin !== 'object' || plugin === null || !('name' in plugin) || !('actions' in plugin)) {
    throw new SettingError(
      `--plugin: ${path} exports no plugin; export the result of definePlugin as \`plugin\` or as the default.`,
    );
  }
  return plugin as Plugin;
}
