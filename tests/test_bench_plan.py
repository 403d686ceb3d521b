"""Plans: read strictly, a mistake is told with its place, the text stays; the paper's plans are valid."""

import pickle

import pytest

import fei
from fei.bench.plan import LAYOUTS, Plan, load_plan, parse_plan, presets
from fei.errors import InputError

TEXT = """# two methods
name = "two"
seeds = [0, 1]

[[pairs]]
model = "efficientnet_lite0"
data = "imagenet:/somewhere"

[[methods]]
name = "FEI-VM"
options = { steps = 3, quantiles = [0.2, 0.5], sites = ["a", "b"] }

[[methods]]
name = "gradcam"
label = "Grad-CAM"
group = "cams"
options = { relu = true }
"""


def test_what_is_read_and_what_is_filled_in():
    plan = parse_plan(TEXT)
    assert plan.seeds == (0, 1)
    assert plan.pairs[0].name == "efficientnet_lite0 on imagenet:/somewhere"
    assert [(row.name, row.label, row.group) for row in plan.methods] == [
        ("fei-vm", "FEI-VM", ""),
        ("gradcam", "Grad-CAM", "cams"),
    ]
    assert plan.methods[0].options == {"steps": 3, "quantiles": [0.2, 0.5], "sites": ["a", "b"]}
    assert (plan.target, plan.keep_maps, plan.retries, plan.layout) == ("predicted", False, 1, "plain")
    assert plan.metrics.protocols == ("fei-paper/1",)
    assert plan.metrics.external
    assert plan.metrics.internal
    assert not plan.metrics.localization
    assert plan.black_image is None
    assert plan.sanity is None
    assert plan.black_image_methods() == plan.sanity_methods() == []


def test_the_text_stays_to_the_letter_and_travels(tmp_path):
    file = tmp_path / "plan.toml"
    file.write_bytes(TEXT.replace("\n", "\r\n").encode())
    plan = load_plan(file)
    assert plan.text.encode() == file.read_bytes()
    assert pickle.loads(pickle.dumps(plan)).text == plan.text


def test_a_plan_made_in_python_has_a_text_too():
    plan = parse_plan(TEXT + "[metrics]\nprotocols = ['rise', 'fei-fine']\n[black_image]\ntrials = 3\n")
    made = Plan.model_validate(plan.model_dump())
    assert parse_plan(made.text).model_dump() == made.model_dump() == plan.model_dump()


def test_text_with_every_sign_survives():
    odd = 'a "quoted" \\ back\tslash\x7f β=10⁻²'
    plan = Plan.model_validate(parse_plan(TEXT).model_dump() | {"name": odd})
    assert parse_plan(plan.text).name == odd


def test_which_methods_the_other_parts_take():
    plan = parse_plan(TEXT + "[black_image]\ntrials = 3\n[sanity]\nimages = 1\n")
    assert plan.black_image_methods() == [0]  # of these only FEI optimises
    assert plan.sanity_methods() == [0, 1]
    plan = parse_plan(TEXT + "[sanity]\nimages = 1\nmethods = ['Grad-CAM']\n")
    assert plan.sanity_methods() == [1]
    without = TEXT.replace('data = "imagenet:/somewhere"', "") + "[black_image]\ntrials = 1\n"
    assert parse_plan(without).pairs[0].name == "efficientnet_lite0"


def before(line):
    return ("seeds = [0, 1]", f"seeds = [0, 1]\n{line}")


@pytest.mark.parametrize(
    ("change", "told"),
    [
        (("steps = 3", "stepz = 3"), "`methods[0].options`: The method 'fei-vm' has no option 'stepz'; it takes "),
        (("steps = 3", "steps = '3'"), "`methods[0].options`: `steps` must be a whole number of at least 1; got '3'"),
        (('"gradcam"', '"gradkam"'), "`methods[1].name`: Unknown method 'gradkam'; did you mean gradcam"),
        (('"Grad-CAM"', '"FEI-VM"'), "The label 'FEI-VM' is given twice (`methods[1].label`); give each"),
        (("group =", "grupp ="), "`methods[1].grupp` is no key here; the keys are name, label, group, options"),
        (("[0, 1]", "[]"), "`seeds` is []; give at least one entry"),
        (("[0, 1]", "[0, 0]"), "The seed 0 is given twice (`seeds[1]`)"),
        (("[0, 1]", "[0, -1]"), "`seeds[1]` is -1; give at least 0"),
        (("[0, 1]", "[0, 1.0]"), "`seeds[1]` is 1.0; give a whole number"),
        (("[0, 1]", "[true]"), "`seeds[0]` is True; give a whole number"),
        (("[0, 1]", "3"), "`seeds` is 3; give a list in square brackets"),
        (('name = "two"', ""), "`name` is missing; give it a value"),
        (before('target = "lable"'), "`target` is 'lable'; choose one of 'predicted', 'label'"),
        (before('layout = "tall"'), f"`layout` is 'tall'; choose one of {', '.join(map(repr, LAYOUTS))}"),
        (before("keep_maps = 1"), "`keep_maps` is 1; give true or false"),
        (before("retries = -1"), "`retries` is -1; give at least 0"),
        (before("metrics = { protocols = ['rice'] }"), "`metrics.protocols`: Unknown protocol 'rice'; did you mean"),
        (before("metrics = { protocols = ['rise', 'rise/1'] }"), "`metrics.protocols`: The protocol 'rise/1' is given"),
        (before("metrics = { inside = true }"), "`metrics.inside` is no key here; the keys are protocols, "),
        (before("black_image = { trials = 0 }"), "`black_image.trials` is 0; give at least 1"),
        (before("black_image = {}"), "`black_image.trials` is missing"),
        (before("black_image = { trials = 1, methods = ['Grad-CAM'] }"), "'Grad-CAM', which optimises no perturbed"),
        (before("sanity = { images = 1, methods = ['x'] }"), "`sanity.methods[0]` is 'x', the label of no method; the"),
        (('data = "imagenet:/somewhere"', ""), "`pairs[0].data` is missing; give a data set"),
        (("imagenet:/some", "imagnet:/some"), "`pairs[0].data`: There is no kind of data set 'imagnet'; did you mean"),
        (("imagenet:/somewhere", "imagenet:"), "`pairs[0].data`: The data set 'imagenet:' names no place; the form is"),
        (('"efficientnet_lite0"', '"resnet50"'), "`pairs[0].model`: There is no model 'resnet50'; give one of: effic"),
        (("[[pairs]]", "[pairs]"), "`pairs` is {'model': 'efficientnet_lite0'"),
        (("[[methods]]", "[[method]]"), "`method` is no key here; the keys are name, pairs, methods"),
        (("seeds = [0, 1]", "seeds [0, 1]"), "This is no valid TOML (Expected '='"),
    ],
)
def test_mistakes_are_told_with_their_place(change, told):
    with pytest.raises(InputError) as caught:
        parse_plan(TEXT.replace(*change))
    assert told in str(caught.value)
    assert "\n" not in str(caught.value)


def test_files_that_are_no_plans(tmp_path):
    with pytest.raises(InputError, match="cannot be read .*; check the path"):
        load_plan(tmp_path / "none.toml")
    large = tmp_path / "large.toml"
    large.write_bytes(b"#" * 1_000_001)
    with pytest.raises(InputError, match="larger than 1 MB"):
        load_plan(large)
    binary = tmp_path / "binary.toml"
    binary.write_bytes(b"\xff\xfe")
    with pytest.raises(InputError, match="no text in UTF-8"):
        load_plan(binary)
    wrong = tmp_path / "wrong.toml"
    wrong.write_text(TEXT.replace("steps", "stepz"), encoding="utf-8")
    with pytest.raises(InputError, match=r"wrong.toml': `methods\[0\].options`: "):
        load_plan(wrong)


@pytest.mark.parametrize("text", [f"a = {'[' * 10_000}", f"a = {'9' * 5000}"])
def test_more_brackets_or_digits_than_are_read(text):
    with pytest.raises(InputError, match="This is no valid TOML"):
        parse_plan(text)


@pytest.mark.parametrize("quick", [False, True])
@pytest.mark.parametrize("name", presets.names())
def test_the_presets_are_plans(name, quick):
    plan = parse_plan(presets.preset(name, quick=quick))
    assert plan.name == name
    assert plan.layout != "plain"
    assert presets.describe(name)
    assert plan.seeds == ((0,) if quick or (plan.keep_maps and name != "figure-2") else (0, 1, 2))
    for row in plan.methods:
        if row.name.startswith("fei-") or row.name == "fgvis":
            assert quick or row.options["preset"] == "paper"
        if "cam" in row.name:
            assert row.options["relu"] is True
        reduced = quick and (row.name.startswith("fei-") or row.name in {"rise", "extremal-perturbation", "fgvis"})
        assert row.label.endswith("]") or not reduced


def labels(name):
    plan = parse_plan(presets.preset(name))
    return [row.label for row in plan.methods], [pair.name for pair in plan.pairs]


def test_rows_and_columns_are_the_papers():
    rows, columns = labels("table-external")
    assert rows == [
        "FG-VCE",
        "GradCAM",
        "Extremal Perturbation",
        "Lift-CAM",
        "GradCAM++",
        "ScoreCAM",
        "IIA",
        "RISE",
        "Saliency",
        "Smoothgrad",
        "Integrated Gradient",
        "FEI-IBM",
        "FEI-AVM",
        "FEI-VM",
        "FEI-IVM",
        "FEI-NONE",
    ]
    assert columns == [f"{data}, {net}" for data in ("CUB-200-2011", "ImageNet") for net in ("VGG16", "ResNet50")]
    rows, columns = labels("table-black-image")
    assert rows == ["FGVis", "FEI-IBM", "FEI-IVM", "FEI-AVM", "FEI-VM", "FEI-NONE"]
    assert columns == ["AlexNet", "ResNet50", "VGG16", "GoogLeNet"]
    inside = [
        "GradCAM++",
        "ScoreCAM",
        "Lift-CAM",
        "GradCAM",
        "FG-VCE",
        "IIA",
        "RISE",
        "Extremal Perturbation",
        "SmoothGrad",
        "Saliency",
        "Integrated Gradients",
        "FEI-VM",
        "FEI-IVM",
        "FEI-IBM",
        "FEI-AVM",
        "FEI-NONE",
    ]
    assert labels("table-internal") == (inside, ["ImageNet, VGG16", "ImageNet, ResNet50"])
    assert labels("layerwise-resnet") == (inside, ["ImageNet, ResNet50", "CUB-200-2011, ResNet50"])
    assert labels("layerwise-vgg") == (inside, ["ImageNet, VGG16", "CUB-200-2011, VGG16"])
    assert len(labels("ablation")[0]) == 17


def test_the_tables_share_their_units():
    """A method must be told the same in all tables, so that one run's maps serve the others."""
    told = {}
    for name in ("table-external", "table-internal", "layerwise-vgg", "visual-comparison", "figure-1"):
        for row in parse_plan(presets.preset(name)).methods:
            assert told.setdefault(row.name, row.options) == row.options


def test_the_ablation_changes_what_it_says():
    rows = {row.label: row.options for row in parse_plan(presets.preset("ablation")).methods}
    assert rows["FEI-VM (full method)"] == {"preset": "paper"}
    assert rows["Constant (β=10^-2)"]["beta"] == 0.01
    assert rows["Early layers only (1-16)"]["sites"] == "first:7/13"
    assert rows["Later layers only (16-30)"]["sites"] == "last:6/13"
    assert rows["L1(β=1e-1)"] == {"preset": "paper", "constraint": "l1", "beta": 0.1, "init": 1.0, "lr": 0.05}
    assert rows["No Constraint"]["constraint"] == "none"
    assert rows["epochs(300)"]["steps"] == 300
    configs = [fei.methods.create("fei-vm", **options).config for options in rows.values()]  # type: ignore[attr-defined]
    assert all(config not in configs[:index] for index, config in enumerate(configs))


def test_networks_and_data_of_ones_own():
    plan = parse_plan(presets.preset("table-external", models=["net.py:net", "timm:resnet18"], data=["csv:my.csv"]))
    assert [(pair.model, pair.data) for pair in plan.pairs] == [
        ("net.py:net", "csv:my.csv"),
        ("timm:resnet18", "csv:my.csv"),
    ]
    assert [pair.name for pair in plan.pairs] == ["my.csv, net.py:net", "my.csv, timm:resnet18"]
    plan = parse_plan(presets.preset("table-internal", data=["cub:/birds"]))
    assert plan.pairs[0].model == "torchvision:vgg16:vgg16-cub.safetensors"
    assert plan.pairs[0].name == "CUB-200-2011, VGG16"
    with pytest.raises(InputError, match="There is no preset 'table-extern'; did you mean table-external"):
        presets.preset("table-extern")
    with pytest.raises(InputError, match="has no data set: its images are black"):
        presets.preset("table-black-image", data=["photos"])


def test_the_photographs_of_quick_plans_are_there():
    plan = parse_plan(presets.preset("table-external", quick=True))
    assert [item.id for item in fei.data.load(plan.pairs[0].data)] == ["camera.png", "coffee.png"]


def test_to_read_a_plan_is_not_to_run_what_it_names(tmp_path, monkeypatch):
    canary = tmp_path / "canary"
    (tmp_path / "named_code.py").write_text(
        f"open({str(canary)!r}, 'w').close()\ndef maps(model): ...\n", encoding="utf-8"
    )
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "plan.toml").write_text(
        'name = "x"\n[[pairs]]\nmodel = "named_code:network"\ndata = "photos"\n'
        '[[methods]]\nname = "named_code:maps"\noptions = { a = 1 }\n[[methods]]\nname = "fei-vm"\n'
        "[black_image]\ntrials = 1\n[sanity]\nimages = 1\n",
        encoding="utf-8",
    )
    plan = load_plan(tmp_path / "plan.toml")
    assert plan.black_image_methods() == [1]
    assert not canary.exists()
