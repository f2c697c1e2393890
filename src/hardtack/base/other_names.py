"""What users of foolbox, torchattacks, ART, RobustBench, timm, Ultralytics and PyTorch call our settings and names.

    other_names("eps")         ("threat=linf:8/255",)
    other_names("step-size")   ("step", "attack.step", "objective.attack.step")

`did_you_mean` (errors.py) proposes the first of them that fits where the word was typed: a setting, with its section
where the word stood outside of it, or a name, with a setting behind it where there is no name of its own. A test checks
that each of them exists.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

_THREAT = ("threat=linf:8/255", "attack.threat=linf:8/255", "objective.attack.threat=linf:8/255")
_STEPS = ("steps", "attack.steps", "objective.attack.steps")
_STEP = ("step", "attack.step", "objective.attack.step")
_LR = ("lr", "optimiser.lr")

# theirs, separated by spaces: ours, in the order in which they are tried
_SETTINGS: Mapping[str, tuple[str, ...]] = {
    # attacks
    "eps epsilon epsilons max_eps max_epsilon radius norm lp_norm ord threat_model budget delta": _THREAT,
    "steps num_steps n_steps nb_iter num_iter n_iter iters iter iterations num_iterations max_iter attack_steps "
    "attack_iters pgd_steps adv_steps n_queries max_queries num_queries": _STEPS,
    "step_size stepsize step_length alpha eps_step eps_iter abs_stepsize pgd_alpha adv_alpha attack_lr": _STEP,
    "rel_stepsize relative_stepsize relative_step_size": ("relative_step", "attack.relative_step"),
    "restarts num_restarts n_restarts nb_restarts random_restarts num_random_init": ("restarts", "attack.restarts"),
    "random_start rand_init random_init": ("start", "attack.start"),
    "mu decay_factor": ("momentum", "attack.momentum"),
    "kappa margin": ("confidence", "attack.confidence"),
    "initial_const init_const const": ("c", "attack.c"),
    "eot_iter eot_steps eot_samples": ("eot", "attack.eot"),
    "n_targets num_targets n_target_classes": ("targets", "attack.targets"),
    "targeted target_class": ("target", "attack.target"),
    "loss loss_fn loss_function criterion": ("loss", "attack.loss"),
    "n_samples num_samples samples_per_step": ("samples", "attack.samples", "n"),
    "attacks_to_run attack_list": ("attacks",),
    "adversary attack_type attack_name attack_method": ("attack", "objective.attack"),
    # evaluation
    "n_examples num_examples n_ex max_examples num_images n_images num_test limit subset": ("n", "data.limit"),
    "corruptions corruption corruption_types": ("types",),
    "severity corruption_severity": ("severities",),
    "eps_list epsilons_list radii": ("sweep",),
    "aa_version autoattack_version": ("version",),
    "ckpt checkpoint_name which": ("checkpoint", "weights", "model.weights"),
    # data
    "dataset data_name dataset_name": ("data", "data.name"),
    "data_path data_dir data_root dataset_path datadir root": ("root", "data.root"),
    "num_workers n_workers nworkers": ("data.workers", "workers"),
    "img_size input_size imgsz image_size resolution size img_sz": ("image_size", "data.image_size"),
    "crop_pct": ("crop", "data.crop"),
    "val_split val_fraction validation_split": ("validation", "data.validation"),
    # models
    "arch architecture backbone network net model_name": ("model", "model.name"),
    "pretrained": ("model.pretrained",),
    "checkpoint_path initial_checkpoint model_path weights weights_path pth state_dict": ("weights", "model.weights"),
    "num_classes nb_classes n_classes nc": ("num_classes", "model.num_classes"),
    "drop_path drop_path_rate": ("drop_path", "model.options.drop_path"),
    "drop dropout dropout_rate": ("dropout", "model.options.dropout"),
    "normalize_mean": ("mean", "model.mean"),
    "normalize_std": ("std", "model.std"),
    # training
    "epochs num_epochs n_epochs max_epochs nepochs": ("epochs", "train.epochs"),
    "batch bs batch_size train_batch_size per_device_train_batch_size": ("batch_size", "train.batch_size"),
    "lr lr0 learning_rate base_lr blr lr_max max_lr": _LR,
    "opt optim optimizer optimizer_name": ("optimiser",),
    "opt_eps adam_epsilon": ("eps", "optimiser.eps"),
    "opt_betas adam_betas beta1 beta2": ("betas", "optimiser.betas"),
    "momentum": ("optimiser.momentum",),
    "wd weight_decay decay": ("weight_decay", "optimiser.weight_decay"),
    "sched scheduler lr_scheduler lr_schedule lr_policy cos_lr": ("schedule",),
    "warmup warmup_epochs": ("warmup_epochs", "schedule.warmup_epochs"),
    "min_lr lrf eta_min lr_min": ("final_lr", "schedule.final_lr"),
    "lr_decay_epochs decay_epochs decay_milestones": ("milestones", "schedule.milestones"),
    "clip clip_grad grad_clip max_grad_norm gradient_clip_val clip_norm": ("clip", "train.clip"),
    "grad_accum_steps accumulation_steps accumulate_grad_batches gradient_accumulation_steps accum_iter grad_accum":
        ("accumulate", "train.accumulate"),
    "ema model_ema ema_decay model_ema_decay": ("ema", "train.ema"),
    "swa swa_start": ("swa_from", "train.swa_from"),
    "early_stopping early_stopping_patience": ("patience", "train.patience"),
    "freeze_layers frozen": ("freeze", "train.freeze"),
    "grad_checkpointing gradient_checkpointing": ("checkpoint_blocks", "train.checkpoint_blocks"),
    "log_interval log_every_n_steps print_freq print_every": ("log_every", "train.log_every"),
    "wandb log_wandb use_wandb tracker logger report_to mlflow tensorboard": ("track", "train.track"),
    "eval_interval eval_every val_interval val_every check_val_every_n_epoch val_freq": ("every", "validation.every"),
    "awp sam": ("sharpness",),
    "rho": ("sharpness.rho",),
    "awp_gamma": ("rho", "sharpness.rho"),
    "method algorithm training_method adv_method": ("objective",),
    "beta trades_beta lam lambda lamda": ("objective.beta", "beta"),
    "smoothing label_smoothing": ("label_smoothing", "objective.label_smoothing"),
    # augmentation
    "augmentation augmentations aug transforms": ("augment",),
    "mixup mixup_alpha": ("mixup", "augment.mixup"),
    "cutmix cutmix_alpha": ("cutmix", "augment.cutmix"),
    "mixup_prob": ("mix_probability", "augment.mix_probability"),
    "mixup_switch_prob": ("mix_switch", "augment.mix_switch"),
    "reprob re_prob erasing random_erasing random_erase": ("erase", "augment.erase"),
    "remode": ("erase_mode", "augment.erase_mode"),
    "aa auto_augment autoaugment rand_augment randaugment augment_policy": ("policy", "augment.policy"),
    "hflip fliplr horizontal_flip random_flip": ("flip", "augment.flip"),
    "random_crop crop padding": ("crop_padding", "augment.crop_padding"),
    "rrc random_resized_crop": ("resized_crop", "augment.resized_crop"),
    "hsv_h hsv_s hsv_v jitter": ("color_jitter", "augment.color_jitter"),
    "degrees rotation": ("rotate", "augment.rotate"),
    "cutout_length": ("cutout", "augment.cutout"),
    # machine and output
    "device gpu gpu_id cuda accelerator": ("device", "runtime.device"),
    "seed manual_seed random_seed": ("seed", "runtime.seed"),
    "amp fp16 half bf16 fp32 mixed_precision amp_dtype dtype": ("precision", "runtime.precision"),
    "compile torchcompile torch_compile": ("compile", "runtime.compile"),
    "fsdp": ("shard", "runtime.shard"),
    "gpus n_gpus num_gpus ngpus nproc_per_node world_size devices": ("workers",),
    "nodes num_nodes": ("slurm.nodes",),
    "save_dir output_dir out_dir outdir exp_dir save_path log_dir savedir project dest": ("output",),
    "experiment exp_name run_name exp": ("name", "output"),
}  # fmt: skip

_NAMES: Mapping[str, tuple[str, ...]] = {
    # attacks
    "fgm fast_gradient fast_gradient_method fast_gradient_sign linffastgradientattack l2fastgradientattack "
    "fastgradientmethod": ("fgsm",),
    "bim ifgsm i_fgsm basiciterativemethod linfbasiciterativeattack": ("pgd attack.start=clean",),
    "linfpgd l2pgd l1pgd pgdl2 pgd_l2 pgd_linf pgd_l1 pgdlinf projectedgradientdescent projected_gradient_descent "
    "pgd10 pgd20 pgd50 pgd100 pgd_10 pgd_20 pgd_50 pgd_100": ("pgd",),
    "mifgsm mi_fgsm mim momentumiterativemethod": ("momentum_pgd",),
    "ffgsm r_fgsm": ("rfgsm",),
    "tpgd": ("pgd attack.loss=kl",),
    "apgdt targeted_apgd": ("apgd_t",),
    "autopgd auto_pgd autoprojectedgradientdescent": ("apgd",),
    "fabt fabattack": ("fab_t", "fab"),
    "squareattack square_attack": ("square",),
    "c&w carlini cw_l2 cwl2 carlinil2method carlini_wagner l2carliniwagnerattack": ("cw", "cw_search"),
    "eadattack eaden eadl1 elasticnet elastic_net": ("ead",),
    "linfdeepfoolattack l2deepfoolattack deepfoolattack deep_fool": ("deepfool",),
    "ddnattack": ("ddn",),
    "fmnattack l2fmnattack linffmnattack fast_minimum_norm": ("fmn",),
    "boundaryattack boundary_attack": ("boundary",),
    "hsja hopskipjumpattack hop_skip_jump": ("hopskipjump",),
    "patchfool": ("patch_fool",),
    # suites
    "aa auto_attack autoattack_standard": ("autoattack",),
    "common_corruptions corruption cifar_c imagenet_c cifar10_c robustness_c": ("corruptions",),
    "cifar_p imagenet_p perturbation": ("perturbations",),
    "randomized_smoothing randomised_smoothing certify certified certification cohen": ("smoothing",),
    "natural standard accuracy acc": ("clean", "standard"),
    # objectives
    "at pgd_at pgdat adv adversarial_training madry madry_at": ("adversarial",),
    "fast_at fgsm_at fast": ("adversarial objective.attack=rfgsm",),
    "erm ce cross_entropy crossentropy clean normal vanilla": ("standard",),
    "awp at_awp awp_at": ("adversarial sharpness=awp",),
    "free_at freeat free_adv": ("free",),
    "gaussian_augmentation noise_training": ("gaussian",),
    # losses
    "crossentropyloss xent nll": ("ce",),
    "cw_loss cwloss logit_margin": ("margin",),
    "kldiv kl_div": ("kl",),
    # data
    "imagefolder image_folder": ("folder",),
    "hf huggingface hfds tfds wds webdataset": ("timm",),
    # norms
    "inf l_inf linfinity infinity max": ("linf",),
    "2 l_2 euclidean": ("l2",),
    "1 l_1 manhattan": ("l1",),
    # executors
    "local localhost": ("here",),
    "ddp multi_gpu distributed": ("torchrun",),
    "sbatch cluster hpc": ("slurm",),
    # verbs
    "eval val test validate benchmark score robustness certify": ("evaluate",),
    "fit finetune fine_tune run": ("train",),
    "predict craft generate perturb": ("attack",),
    "explain analyse analysis interpret visualize visualise": ("analyze",),
    "info show help man summary": ("describe",),
    "ls search find": ("list",),
    "check env": ("doctor",),
    "cost estimate": ("plan",),
    "diff": ("compare",),
    # lists
    "architectures archs arch nets": ("models",),
    "methods algorithms": ("objectives",),
    "data": ("datasets",),
    "experiments papers": ("studies",),
    "configs config": ("recipes",),
    "options parameters params keys": ("settings",),
}


def _by_word() -> Iterator[tuple[str, tuple[str, ...]]]:
    for table in (_SETTINGS, _NAMES):
        for words, ours in table.items():
            yield from ((word, ours) for word in words.split())


OTHER_NAMES: dict[str, tuple[str, ...]] = {}
for _word, _ours in _by_word():
    OTHER_NAMES[_word] = (*OTHER_NAMES.get(_word, ()), *_ours)


def other_names(word: str) -> tuple[str, ...]:
    """What we call it, most likely first; nothing where the word is not known."""
    return OTHER_NAMES.get(word.lower().replace("-", "_"), ())
