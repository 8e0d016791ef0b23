// The plugin routes of the current variant: members `plugin_name` and `action_name`;
// listPlugins returns states, listCatalog summaries.
import type { Operations } from '../../contract/agent/operations.gen.ts';
import type { Handlers } from '../../kernel/contract/operation.ts';
import type { Identity } from '../identity.ts';
import type { PluginCore } from './core.ts';

export function currentRoutes(core: PluginCore): Handlers<Operations, 'plugins', Identity> {
  return {
    'plugins.listPlugins': async () => ({
      status: 200,
      body: { success: true, plugins: await core.states() },
    }),
    'plugins.listCatalog': async () => ({
      status: 200,
      body: { success: true, plugins: await core.summaries() },
    }),
    'plugins.checkAvailability': async ({ body: { plugin_name } }) => ({
      status: 200,
      body: { success: true, plugin_name, availability: await core.availability(plugin_name) },
    }),
    'plugins.callAction': async ({
      body: { plugin_name, action_name, payload = {} },
      requestId,
      signal,
      log,
    }) => {
      const result = await core.call({
        plugin: plugin_name,
        action: action_name,
        payload,
        caller: 'api',
        callId: requestId,
        signal,
        log,
      });
      return { status: 200, body: { success: true, plugin_name, action_name, result } };
    },
  };
}
