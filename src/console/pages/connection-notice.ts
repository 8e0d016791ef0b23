// What a room shows before it has anything to show: that it is reading, or why it cannot.
import type { AgentView } from '../views.ts';
import { empty, fillWhenChanged, h } from './elements.ts';

const titles = {
  away: 'The agent does not answer',
  silent: 'The agent does not answer',
  refused: 'The agent does not accept the console',
} as const;

export function loading(): HTMLElement {
  return h('p', { class: 'quiet placeholder' }, 'Reading …');
}

/** Says why the place is empty. Content that was read before the agent went away stays. */
export function showAway(place: HTMLElement, agent: Exclude<AgentView, { state: 'here' }>): void {
  if ([...place.children].some((child) => !child.classList.contains('placeholder'))) return;
  fillWhenChanged(place, ['away', agent], () => {
    const view = empty(
      titles[agent.state],
      agent.message !== `${titles[agent.state]}.` && h('p', {}, agent.message),
      h('p', {}, 'This room fills by itself once the agent is back.'),
    );
    view.classList.add('placeholder');
    return view;
  });
}
