"""Colours, type and spacing of the page, as a Gradio theme; the style sheet in assets/ builds on its variables."""

from __future__ import annotations

import gradio as gr

from workbench.parity_lab.report.style import PARTS
from workbench.registry.sources import assets

# One hue carries meaning (buttons and selected items); everything else is grey with a little of that hue.
PETROL = gr.themes.Color(
    "#eef7f6", "#d6ecea", "#addad7", "#7cc2bf", "#46a5a3", "#1f8786",
    "#0e6e70", "#0b595c", "#0a484b", "#093b3e", "#052426", name="petrol",
)  # fmt: skip
SLATE = gr.themes.Color(
    "#f5f7f6", "#ebeeed", "#dbe1df", "#c0c9c6", "#93a09c", "#66746f",
    "#4c5955", "#384440", "#24302c", "#17211e", "#0e1614", name="slate",
)  # fmt: skip

# System fonts only: nothing is downloaded, and every script has a suitable font.
SANS = ("system-ui", "-apple-system", "Segoe UI", "Roboto", "Noto Sans", "Helvetica Neue", "sans-serif")
MONO = ("ui-monospace", "SFMono-Regular", "Menlo", "Consolas", "DejaVu Sans Mono", "monospace")

# Gradio's medium sizes, which it has in pixels. In rem they follow the size of text that the browser is set to.
TEXT = gr.themes.Size(
    xxs="0.5625rem",
    xs="0.625rem",
    sm="0.75rem",
    md="0.875rem",
    lg="1rem",
    xl="1.375rem",
    xxl="1.625rem",
    name="text_rem",
)


def head() -> str:
    """Returns the head of the page: the style sheets unchanged, that of the parts of parity reports, and the scripts
    for the language, the addresses of tabs, messages, the stream of events, lost connections, early presses and
    scrolling.

    Gradio's own way (`css_paths`) rewrites every selector, splits it at commas even inside `:is()`, and drops the
    original rule inside `@media`.
    """
    sheets = "".join(
        (assets() / name).read_text(encoding="utf-8")
        for name in (
            "style.css",
            "decode.css",
            "chat/chat.css",
            "visualise/visualise.css",
            "live/live.css",
            "timeline/timeline.css",
            "forced-colours.css",
            "print.css",
        )
    )
    scripts = "".join(
        (assets() / name).read_text(encoding="utf-8")
        for name in (
            "language.js",
            "address.js",
            "toasts.js",
            "event_stream.js",
            "reconnect.js",
            "presses.js",
            "run_focus.js",
            "scrolling.js",
        )
    )
    return f"<style>{sheets}{PARTS}</style><script>{scripts}</script>"


def words() -> gr.I18n:
    """Returns the texts that replace Gradio's own, such as the name of a button. The page is in English."""
    return gr.I18n(en={"common.upload": "Add files"})


def theme() -> gr.Theme:
    """Returns the page's theme, for light and dark."""
    base = gr.themes.Base(
        primary_hue=PETROL,
        secondary_hue=PETROL,
        neutral_hue=SLATE,
        radius_size=gr.themes.sizes.radius_md,
        spacing_size=gr.themes.sizes.spacing_md,
        text_size=TEXT,
        font=SANS,
        font_mono=MONO,
    )
    return base.set(
        body_background_fill="*neutral_50",
        body_background_fill_dark="*neutral_950",
        body_text_color="*neutral_900",
        body_text_color_dark="*neutral_100",
        body_text_color_subdued="*neutral_600",
        body_text_color_subdued_dark="*neutral_400",
        block_background_fill="white",
        block_background_fill_dark="*neutral_900",
        block_border_color="*neutral_200",
        block_border_color_dark="*neutral_800",
        block_border_width="1px",
        block_radius="10px",
        block_shadow="none",
        block_label_background_fill="transparent",
        block_label_background_fill_dark="transparent",
        block_label_border_width="0",
        block_label_text_color="*neutral_600",
        block_label_text_color_dark="*neutral_400",
        block_title_text_weight="600",
        block_title_text_color="*neutral_800",
        block_title_text_color_dark="*neutral_200",
        block_info_text_color="*neutral_600",
        block_info_text_color_dark="*neutral_400",
        input_background_fill="white",
        input_background_fill_dark="*neutral_950",
        input_border_width="1px",
        input_border_color="*neutral_300",
        input_border_color_dark="*neutral_700",
        input_border_color_focus="*primary_500",
        input_border_color_focus_dark="*primary_400",
        border_color_primary="*neutral_200",
        border_color_primary_dark="*neutral_800",
        background_fill_primary="white",
        background_fill_primary_dark="*neutral_900",
        background_fill_secondary="*neutral_100",
        background_fill_secondary_dark="*neutral_800",
        button_primary_background_fill="*primary_600",
        button_primary_background_fill_dark="*primary_400",
        button_primary_background_fill_hover="*primary_700",
        button_primary_background_fill_hover_dark="*primary_300",
        button_primary_text_color="white",
        button_primary_text_color_dark="*neutral_950",
        button_secondary_background_fill="white",
        button_secondary_background_fill_dark="*neutral_800",
        button_secondary_background_fill_hover="*neutral_100",
        button_secondary_background_fill_hover_dark="*neutral_700",
        button_secondary_border_color="*neutral_300",
        button_secondary_border_color_dark="*neutral_700",
        button_border_width="1px",
        button_primary_border_color="transparent",
        checkbox_label_background_fill="transparent",
        checkbox_label_background_fill_dark="transparent",
        checkbox_label_background_fill_selected="*primary_50",
        checkbox_label_background_fill_selected_dark="*primary_950",
        checkbox_label_text_color_selected="*neutral_900",
        checkbox_label_text_color_selected_dark="*neutral_100",
        checkbox_label_border_color_selected="*primary_600",
        checkbox_label_border_color_selected_dark="*primary_400",
        checkbox_background_color_selected="*primary_600",
        checkbox_background_color_selected_dark="*primary_500",
        checkbox_border_color_selected="*primary_600",
        link_text_color="*primary_700",
        link_text_color_dark="*primary_300",
        color_accent="*primary_600",
        color_accent_soft="*primary_50",
        color_accent_soft_dark="*primary_950",
    )
