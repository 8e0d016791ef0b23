// What a page shows before it has content: that it is loading, or why it cannot.
import type { AgentView } from './views.ts';
import { empty, fillWhenChanged, h } from './elements.ts';

const titles = {
  away: 'The agent does not answer',
  silent: 'The agent does not answer',
  refused: 'The agent does not accept the console',
} as const;

export function loading(): HTMLElement {
  return h('p', { class: 'quiet placeholder' }, 'Reading …');
}

/** Shows why there is no content. Content that was read before the agent went away stays. */
export function showAway(parent: HTMLElement, agent: Exclude<AgentView, { state: 'here' }>): void {
  if ([...parent.children].some((child) => !child.classList.contains('placeholder'))) return;
  fillWhenChanged(parent, ['away', agent], () => {
    const view = empty(
      titles[agent.state],
      agent.message !== `${titles[agent.state]}.` && h('p', {}, agent.message),
      h('p', {}, 'This page fills by itself once the agent is back.'),
    );
    view.classList.add('placeholder');
    return view;
  });
}
