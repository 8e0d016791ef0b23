// Renders a project for other process managers: a Dockerfile with compose files, a Helm chart and systemd
// units. The tests build and run the image, run the compose files and the units, and check the chart with
// Helm.
import { renderChart } from './render-chart.ts';
import { renderCompose, renderComposeOfAgent } from './render-compose.ts';
import { renderDockerfile, renderDockerignore } from './render-image.ts';
import { quote, signature, type RenderOptions } from './render-options.ts';
import { renderAgentUnit, renderUnit } from './render-units.ts';

/** Whether `townhall deploy --render` wrote this text, so that it may be overwritten. */
export function isRendered(text: string): boolean {
  // The schema of the chart's values has the signature in a JSON string.
  return text.includes(signature) || text.includes(quote(signature).slice(1, -1));
}

/** The texts of the files by their path. */
export function renderProject(options: RenderOptions): Record<string, string> {
  const { name } = options.declaration;
  return {
    Dockerfile: renderDockerfile(options),
    // Docker prefers this file to a .dockerignore at the root.
    'Dockerfile.dockerignore': renderDockerignore(),
    'compose.yaml': renderCompose(options),
    'compose.agent.yaml': renderComposeOfAgent(options),
    [`${name}.service`]: renderUnit(options),
    [`${name}-agent.service`]: renderAgentUnit(options),
    ...Object.fromEntries(
      Object.entries(renderChart(options)).map(([path, text]) => [`chart/${path}`, text]),
    ),
  };
}
