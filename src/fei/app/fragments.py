"""Pieces of the page as HTML. Whatever comes from elsewhere, names of classes and networks included, is escaped."""

from __future__ import annotations

import time
from collections.abc import Sequence
from html import escape
from urllib.parse import quote

from fei.app.bundle import ARCHIVE, EXPLORER
from fei.app.jobs import DONE, RUNNING, STOPPED, WAITING, Card, Job
from fei.app.photos import Photo

INTRODUCTION = """
<h1>Which pixels does the network need?</h1>
<p>FEI looks for the pixels that keep both a network's answer and the way it gets there. Give a photo, choose what to
explain and how, and run.</p>
"""

STYLE = """
.fei h1 { font-size: 1.5rem; margin: 0 0 .3rem; }
.fei p { margin: 0; }
.fei-drop label { display: block; position: relative; text-align: center; padding: 1.6rem 1rem; cursor: pointer;
  border: 2px dashed var(--border-color-primary); border-radius: 10px; }
.fei-drop label:hover, .fei-drop.fei-over label { border-color: var(--color-accent); }
.fei-drop label:focus-within { border-color: var(--color-accent); outline: 2px solid var(--color-accent); }
.fei-drop input { position: absolute; inset: 0; opacity: 0; cursor: pointer; width: 100%; }
.fei-drop p { margin-top: .5rem; }
.fei-drop p:empty { display: none; }
.fei-photo { display: flex; justify-content: center; }
.fei-photo img { max-width: 100%; max-height: 280px; border-radius: 8px; }
.fei-empty { color: var(--body-text-color-subdued); padding: .5rem 0; text-align: center; }
.fei-examples { display: grid; grid-template-columns: repeat(auto-fill, minmax(72px, 1fr)); gap: 8px; }
.fei-examples button { padding: 0; border: 2px solid transparent; border-radius: 8px; overflow: hidden; cursor: pointer;
  background: none; }
.fei-examples button, .fei-examples img { margin: 0 !important; }
.fei-examples img { display: block; width: 100%; aspect-ratio: 1; object-fit: cover; }
.fei-examples button:hover, .fei-examples button:focus-visible { border-color: var(--color-accent); outline: none; }
.fei-error { border-left: 4px solid #c62828; padding: .5rem .8rem; background: #c6282814; border-radius: 4px; }
.fei-note { border-left: 4px solid var(--color-accent); padding: .5rem .8rem; border-radius: 4px;
  background: var(--background-fill-primary); }
.fei-run { display: flex; flex-direction: column; gap: .7rem; }
.fei-run progress { appearance: none; width: 100%; height: 10px; border: 0; border-radius: 5px; overflow: hidden;
  background: #8883; }
.fei-run progress::-webkit-progress-bar { background: #8883; }
.fei-run progress::-webkit-progress-value { background: var(--color-accent); }
.fei-run progress::-moz-progress-bar { background: var(--color-accent); }
.fei-cards { display: grid; grid-template-columns: repeat(auto-fill, minmax(130px, 1fr)); gap: 12px; }
.fei-card { margin: 0; }
.fei-card div { aspect-ratio: 1; border-radius: 8px; overflow: hidden; background: #8882 center / cover; }
.fei-card img { display: block; width: 100%; height: 100%; object-fit: cover; }
.fei-card figcaption { font-size: .85rem; line-height: 1.3; padding-top: .3rem; }
.fei-card small { color: var(--body-text-color-subdued); display: block; }
.fei-results { display: flex; flex-direction: column; gap: .7rem; }
.fei-results iframe { width: 100%; height: min(90vh, 1000px); border: 1px solid var(--border-color-primary);
  border-radius: 8px; background: #fff; }
.fei-links { display: flex; flex-wrap: wrap; gap: .8rem; align-items: center; }
.fei-links a.fei-download { background: var(--button-primary-background-fill); color: #fff; padding: .5rem 1rem;
  border-radius: 8px; text-decoration: none; font-weight: 600; }
"""

# The file goes to the server as it is; the answer is a ticket, which the page's event hands in.
UPLOAD = """
const zone = element.querySelector('.fei-drop'), input = zone.querySelector('input'), status = zone.querySelector('p');
const say = (text, wrong) => { status.textContent = text; status.className = wrong ? 'fei-error' : ''; };
const send = async (file) => {
  if (!file) return;
  const most = Number(zone.dataset.most);
  if (file.size > most) return say(`The photo has more than ${most / 1e6} MB; save it smaller.`, true);
  say('Uploading …', false);
  try {
    const headers = {'content-type': 'application/octet-stream'};
    const answer = await fetch('/photo', {method: 'POST', body: file, headers});
    if (!answer.ok) return say(await answer.text(), true);
    trigger('upload', {ticket: (await answer.json()).ticket});
    say('', false);
  } catch (error) {
    say('The photo did not arrive; is the server still running?', true);
  }
};
input.addEventListener('change', () => { send(input.files[0]); input.value = ''; });
for (const kind of ['dragover', 'drop', 'dragleave']) zone.addEventListener(kind, (event) => {
  event.preventDefault();
  zone.classList.toggle('fei-over', kind === 'dragover');
  if (kind === 'drop') send(event.dataTransfer.files[0]);
});
"""

# A click on an example, or Enter on it, is told to the server by the example's number.
CHOOSE_EXAMPLE = """
element.addEventListener('click', (event) => {
  const button = event.target.closest('button[data-example]');
  if (button) trigger('submit', {example: Number(button.dataset.example)});
});
"""


def drop_zone(most: int) -> str:
    """Where a photo is dropped, or chosen with mouse or keyboard.

    Args:
        most: Bytes that a file may have; larger ones are not sent.
    """
    return (
        f'<div class="fei-drop" data-most="{most}"><label><strong>Drop a photo here</strong> or click to choose one'
        '<input type="file" accept="image/*"></label><p role="status"></p></div>'
    )


def examples(names: Sequence[str]) -> str:
    """The examples as buttons with pictures."""
    buttons = (
        f'<button type="button" data-example="{number}" aria-label="Example: {escape(name)}" title="{escape(name)}">'
        f'<img src="/examples/{number}.jpg" alt=""></button>'
        for number, name in enumerate(names)
    )
    return f'<div class="fei-examples" role="group" aria-label="Examples">{"".join(buttons)}</div>'


def photo(given: Photo | None) -> str:
    """The visitor's photo."""
    if given is None:
        return '<p class="fei-empty">No photo yet.</p>'
    return f'<div class="fei-photo"><img src="{given.preview}" alt="Your photo"></div>'


def error(sentence: str) -> str:
    """What went wrong."""
    return f'<p class="fei-error" role="alert">{escape(sentence)}</p>'


def note(sentence: str) -> str:
    """What a visitor should know."""
    return f'<p class="fei-note" role="status">{escape(sentence)}</p>'


def progress(job: Job, ahead: int) -> str:
    """How far a job is.

    Args:
        job: The job.
        ahead: How many come before it, while it waits.
    """
    if job.state == STOPPED:
        return note(job.message)
    if job.state == WAITING:
        return note(f"Waiting: {ahead} run(s) come first.")
    share = sum(map(_share, job.cards.values())) / len(job.cards)
    cards = "".join(_card(job, number, card) for number, card in enumerate(job.cards.values()))
    return (
        f'<div class="fei-run"><p role="status">{escape(_summary(job))}</p>'
        f'<progress max="1" value="{share:.3f}" aria-label="Progress of the run"></progress>'
        f'<div class="fei-cards">{cards}</div></div>'
    )


def results(job: Job) -> str:
    """The explorer and the links to what can be downloaded; nothing for a job without results."""
    if job.state != DONE:
        return ""
    folder = f"/results/{quote(job.token)}"
    return (
        '<div class="fei-results"><p class="fei-links">'
        f'<a class="fei-download" href="{folder}/{ARCHIVE}" download="{ARCHIVE}">Download everything (zip)</a>'
        f'<a href="{folder}/{EXPLORER}" target="_blank" rel="noopener">Open the explorer in a tab of its own</a></p>'
        f'<iframe title="Explorer of the results" sandbox="allow-scripts allow-downloads" src="{folder}/{EXPLORER}">'
        "</iframe></div>"
    )


def _summary(job: Job) -> str:
    if job.state == DONE:
        return f"Done in {job.lasted:.0f} s."
    done = sum(card.state == "done" for card in job.cards.values())
    now = next((card for card in job.cards.values() if card.state in ("running", "measuring")), None)
    seconds = f"{time.monotonic() - job.started:.0f} s"
    if job.state == RUNNING and now is None:
        return f"Starting ({seconds})."
    doing = "" if now is None else f"{now.method}, {_words(now)}"
    return f"{doing} ({done} of {len(job.cards)} methods done, {seconds})."


def _share(card: Card) -> float:
    if card.state == "running":
        return 0.8 * card.done / card.total if card.total else 0.0
    return {"waiting": 0.0, "measuring": 0.8, "done": 1.0}[card.state]


def _words(card: Card) -> str:
    if card.state == "running":
        return f"step {card.done} of {card.total}" if card.total > 1 else "running"
    return {"waiting": "waiting", "measuring": "measuring its faithfulness", "done": "done"}[card.state]


def _card(job: Job, number: int, card: Card) -> str:
    picture = back = ""
    if card.frame:
        address = f"/results/{quote(job.token)}/{number}.jpg?frame="
        picture = f'<img src="{address}{card.frame}" alt="{escape(card.method)}: the map so far">'
        # The frame before stays behind the new one until that has loaded.
        back = f' style="background-image:url({address}{max(1, card.frame - 1)})"'
    return (
        f'<figure class="fei-card"><div{back}>{picture}</div>'
        f"<figcaption>{escape(card.method)}<small>{escape(_words(card))}</small></figcaption></figure>"
    )
