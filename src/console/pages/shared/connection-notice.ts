// The state of a page without current content: it is loading, or the reason why it cannot load.
import type { AgentView } from './views.ts';
import { emptyState, fill, fillWhenChanged, h } from './elements.ts';

const titles = {
  unreachable: 'The agent does not answer',
  silent: 'The agent does not answer',
  refused: 'The agent does not accept the console',
} as const;

export function loadingNotice(): HTMLElement {
  return h('p', { class: 'quiet placeholder' }, 'Loading …');
}

/** A line below a list that is loaded again with each overview. It shows when loading fails. */
export function createStaleNote(): { element: HTMLElement; track(read: Promise<unknown>): void } {
  const element = h('p', { class: 'quiet', role: 'status' });
  return {
    element,
    track(read) {
      read.then(
        () => fill(element),
        (error: unknown) =>
          fill(
            element,
            `This list could not be updated: ${error instanceof Error ? error.message : String(error)}`,
          ),
      );
    },
  };
}

/** Shows why there is no content. Content that was loaded before stays. */
export function showUnavailable(
  parent: HTMLElement,
  agent: Exclude<AgentView, { state: 'connected' }>,
): void {
  if ([...parent.children].some((child) => !child.classList.contains('placeholder'))) return;
  fillWhenChanged(parent, ['unavailable', agent], () => {
    const view = emptyState(
      titles[agent.state],
      agent.message !== `${titles[agent.state]}.` && h('p', {}, agent.message),
      h('p', {}, 'This page loads by itself once the agent is back.'),
    );
    view.classList.add('placeholder');
    return view;
  });
}
