// The room's handlers: the routes of the chosen variant, and the console's summary, which both variants have.
import type { Service } from '../service.ts';
import { pluginCore, type PluginCore, type PluginCoreNeeds } from './core.ts';
import { classicRoutes } from './routes-classic.ts';
import { currentRoutes } from './routes.ts';

export interface PluginRooms {
  core: PluginCore;
  /** Keyed by the operations of the chosen variant; the contract's own check says whether all are there. */
  handlers: ReturnType<typeof currentRoutes> | ReturnType<typeof classicRoutes>;
  ui: Service<'ui'>;
}

export function plugins(needs: PluginCoreNeeds & { variant: 'current' | 'classic' }): PluginRooms {
  const core = pluginCore(needs);
  return {
    core,
    handlers: needs.variant === 'classic' ? classicRoutes(core) : currentRoutes(core),
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
