// The routes of plugins in the configured variant, and the console's summary for both variants.
import type { Service } from '../service.ts';
import { pluginCore, type PluginCore, type PluginCoreOptions } from './core.ts';
import { classicRoutes } from './routes-classic.ts';
import { currentRoutes } from './routes.ts';

export interface PluginRoutes {
  core: PluginCore;
  /**
   * The handlers by operation of the configured variant; `createContract` checks that none is
   * missing.
   */
  handlers: ReturnType<typeof currentRoutes> | ReturnType<typeof classicRoutes>;
  ui: Service<'ui'>;
}

export function plugins(options: PluginCoreOptions & { variant: 'current' | 'classic' }): PluginRoutes {
  const core = pluginCore(options);
  return {
    core,
    handlers: options.variant === 'classic' ? classicRoutes(core) : currentRoutes(core),
    ui: {
      name: 'ui',
      handlers: {
        'ui.listPlugins': async () => ({
          status: 200,
          body: { success: true, plugins: await core.summaries() },
        }),
      },
    },
  };
}
